//! The leader's own entries: its state, its configuration, its metrics, and the fleet as `kubectl oke-node status` shows it.

use health::fleet::FleetNode;
use serde_json::json;
use stream::ChunkSender;
use tokio::time::Instant;

use super::{BundleError, BundleSources, json, put};
use crate::cluster::store::NodeView;
/// The nodes of a file of the fleet: with the longest summaries 2 MB.
const NODES_PER_FILE: usize = 500;

pub(super) async fn write(sources: &BundleSources, out: &ChunkSender) -> Result<(), BundleError> {
    let BundleSources { name, configuration, roster, store, metrics, .. } = sources;
    let began = roster.lock().began();
    let status = json!({
        "name": name,
        "version": env!("CARGO_PKG_VERSION"),
        "leaderSeconds": began.elapsed().as_secs(),
        "watchTrouble": store.watches().trouble(),
        "nodes": store.nodes().iter().count(),
    });
    put(out, "controller/status.json", &json(&status)?).await?;
    put(out, "controller/config.json", configuration.as_bytes()).await?;
    put(out, "controller/metrics.txt", metrics.text().as_bytes()).await?;
    let mut names: Vec<String> = store.nodes().iter().map(|node| node.name.clone()).collect();
    names.sort_unstable();
    for (number, names) in names.chunks(NODES_PER_FILE).enumerate() {
        let nodes: Vec<FleetNode> = {
            let (nodes, roster, now) = (store.nodes(), roster.lock(), Instant::now());
            let known = names.iter().filter_map(|name| nodes.named(name));
            let instance = |node: &NodeView| node.instance.as_ref().map(ToString::to_string);
            known.map(|node| FleetNode { instance: instance(node), ..roster.node(&node.name, now) }).collect()
        };
        put(out, &format!("controller/fleet-{}.json", number + 1), &json(&nodes)?).await?;
    }
    Ok(())
}
