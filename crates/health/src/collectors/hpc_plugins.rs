//! Whether the Oracle Cloud Agent has configured RDMA: the state files of its HPC plugins.

use crate::collector::{FIVE_MINUTES, Kind, Sample};
use crate::hardware::shapes::has_rdma_network;
use crate::host::Host;
use crate::signal::{Area, Gap, Signal, Unit};

pub(super) const KIND: Kind = Kind {
    area: Area::Host,
    name: "hpc_plugins",
    every: FIVE_MINUTES,
    privilege: "a mount of `/run/oci-hpc`, which is optional (the chart's `agent.hpcPlugins`): without it not applicable",
    collect,
    signals: &[Signal {
        name: "hpc_plugins_pending",
        unit: Unit::Count,
        source: "`/run/oci-hpc/{oci-hpc-rdma-configure,oci-hpc-mlx-configure,oci-rdma-authentication}.json`",
        why: "Until they are COMPLETED, the node's RDMA network does not work.",
        remedy: "See /var/log/oracle-cloud-agent/plugins/oci-hpc on the node, and enable the HPC plugins of the instance.",
    }],
};

const FOLDER: &str = "run/oci-hpc";

/// One file of each group must be there; newer images have the second one.
const STATES: &[&[&str]] =
    &[&["oci-hpc-rdma-configure.json", "oci-hpc-mlx-configure.json"], &["oci-rdma-authentication.json"]];

fn collect(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    if !has_rdma_network(host.facts.shape.as_deref().unwrap_or_default()) {
        return Err(Gap::absent("this shape has no RDMA network"));
    }
    if !host.has(FOLDER) {
        return Err(Gap::absent("not granted: the chart's value agent.hpcPlugins mounts /run/oci-hpc"));
    }
    let state = |group: &&[&str]| {
        let file = group.iter().find(|file| host.has(&format!("{FOLDER}/{file}")));
        let Some(file) = file else { return format!("{}: not started", group.join(" or ")) };
        let text = host.file(&format!("{FOLDER}/{file}")).unwrap_or_default();
        let json: Option<serde_json::Value> = serde_json::from_str(&text).ok();
        let state = json.as_ref().and_then(|json| json.get("state")?.as_str());
        format!("{file}: {}", state.unwrap_or("unreadable"))
    };
    let pending: Vec<String> = STATES.iter().map(state).filter(|state| !state.ends_with(": COMPLETED")).collect();
    sample.value("hpc_plugins_pending", pending.len() as f64, pending.join(", "));
    Ok(())
}
