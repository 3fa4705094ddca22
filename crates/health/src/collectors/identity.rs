//! Whether the Node is registered by the primary VNIC's address and by this host's name.

use std::net::IpAddr;

use super::{AGENT, FIVE_MINUTES};
use crate::collector::{Area, Gap, Kind, Sample, Signal, Unit};
use crate::host::Host;

pub(super) const KIND: Kind = Kind {
    area: Area::Network,
    name: "identity",
    every: FIVE_MINUTES,
    privilege: AGENT,
    collect,
    signals: &[
        Signal {
            name: "node_ip_mismatch",
            unit: Unit::Yes,
            source: "the pod's status.hostIP and the primary VNIC's addresses",
            why: "The cloud controller manager refuses a Node whose address belongs to a secondary VNIC.",
            remedy: "Set the kubelet's `--node-ip` to the primary VNIC's address, then delete the Node so that it registers again.",
        },
        Signal {
            name: "hostname_mismatch",
            unit: Unit::Yes,
            source: "`/proc/sys/kernel/hostname` and the Node's name",
            why: "A kubelet without `--hostname-override` registers a second Node after its next restart.",
            remedy: "Restore the host's name (`hostnamectl set-hostname`), or set the kubelet's `--hostname-override`.",
        },
    ],
};

fn collect(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    let facts = &host.facts;
    if facts.primary_addresses.is_empty() {
        return Err(Gap::unknown("the addresses of the primary VNIC are not known yet"));
    }
    let primary = |address: &IpAddr| facts.primary_addresses.contains(address);
    let node_ip = facts.node_ip.ok_or_else(|| Gap::unknown("NODE_IP is not set in the agent's environment"));
    let is_other = |address: IpAddr| (if primary(&address) { 0.0 } else { 1.0 }, format!("the Node has {address}"));
    sample.result("node_ip_mismatch", node_ip.map(is_other));
    let name =
        facts.node_name.as_ref().ok_or_else(|| Gap::unknown("NODE_NAME is not set in the agent's environment"))?;
    let hostname = host.proc("sys/kernel/hostname")?;
    let first = |name: &str| name.trim().split('.').next().unwrap_or_default().to_lowercase();
    // OKE names Nodes by their address, whatever the host is called.
    let is_same = name.parse().map_or_else(|_| first(name) == first(&hostname), |address| primary(&address));
    let detail = format!("the Node is {name}, the host is {}", hostname.trim());
    sample.value("hostname_mismatch", if is_same { 0.0 } else { 1.0 }, detail);
    Ok(())
}
