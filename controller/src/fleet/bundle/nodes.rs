//! The bundles of nodes, relayed from their agents one after the other, each into a folder of its own. A node without an answer is
//! a line of the index and ends nothing.

use std::time::Duration;

use api::bundle::{AGENT_BUNDLE_PATH, BundledNode};
use channel::{ReplyStream, Request};
use futures::StreamExt as _;
use resident::logging::chain;
use stream::{ChunkSender, Disconnected, Relay, Relayed, entry_path};

use super::{BundleSources, FOLDER};
use crate::fleet::relay::relay as relay_reply;

/// Requests that are in flight ahead of the node being written, so that the timeouts of silent agents overlap.
const AHEAD: usize = 4;
/// Until a reply begins.
const REPLY: Duration = Duration::from_secs(15);
/// For one node, with a reader as slow as its connection.
const NODE: Duration = Duration::from_mins(2);
/// The most bytes of one node. One with 110 pods has about 2 MB.
const NODE_BYTES_MAX: u64 = 32 << 20;

/// Writes the bundles of these nodes.
pub(super) async fn write(
    sources: &BundleSources,
    nodes: Vec<String>,
    out: &ChunkSender,
) -> Result<Vec<BundledNode>, Disconnected> {
    let open = |name: String| {
        let opening = open(sources.clone(), name.clone());
        // A task goes on while another node has its turn.
        let opened = tokio::spawn(opening);
        async move { (name, opened.await.unwrap_or_else(|error| Err(error.to_string()))) }
    };
    let mut opened = futures::stream::iter(nodes).map(open).buffered(AHEAD);
    let mut written = Vec::new();
    while let Some((name, reply)) = opened.next().await {
        let node = match reply {
            Ok(reply) => relay(&name, reply, out).await?,
            Err(why) => Relayed { problem: Some(why), ..Relayed::default() },
        };
        if let Some(problem) = &node.problem {
            tracing::info!(event = "bundle.node_incomplete", node = name, problem);
        }
        written.push(BundledNode { name, entries: node.entries, bytes: node.bytes, problem: node.problem });
    }
    Ok(written)
}

async fn open(sources: BundleSources, name: String) -> Result<ReplyStream, String> {
    let peer = sources.roster.lock().peer(&name).map_err(|error| error.to_string())?;
    let reply = sources.channel.open(peer, Request::get(AGENT_BUNDLE_PATH), REPLY).await;
    let reply = reply.map_err(|error| chain(&error))?;
    match reply.status() {
        200 => Ok(reply),
        404 => Err("the version of its agent cannot send bundles to the controller".to_owned()),
        429 => Err("its agent is sending another bundle".to_owned()),
        status => Err(format!("its agent answered with status {status}")),
    }
}

async fn relay(name: &str, reply: ReplyStream, out: &ChunkSender) -> Result<Relayed, Disconnected> {
    let relay = Relay::into_folder(format!("{FOLDER}/nodes/{}", entry_path(name)), NODE_BYTES_MAX);
    relay_reply(relay, reply, NODE, out).await
}
