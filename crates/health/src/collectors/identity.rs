//! Whether the Node is registered by the primary VNIC's address and by this host's name.

use std::net::IpAddr;

use super::units::KUBELET;
use crate::collector::{FIVE_MINUTES, Kind, Sample};
use crate::host::Host;
use crate::signal::{Area, Gap, Signal, Unit};

pub(super) const KIND: Kind = Kind {
    area: Area::Network,
    name: "identity",
    every: FIVE_MINUTES,
    privilege: "`/etc/systemd` and `/usr`, read-only: files of the kubelet's unit",
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
            source: "`/proc/sys/kernel/hostname` and the Node's name; files of the kubelet's unit that name `--hostname-override`",
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
    if is_same {
        sample.memory.had_node_name = true;
        sample.value("hostname_mismatch", 0.0, detail);
        return Ok(());
    }
    // With the option, the kubelet keeps its name whatever the host is called. Its command line is not to be seen from here, only
    // its unit's files; but a name that differs from the start was not changed.
    if overrides_hostname(host) {
        return Err(Gap::absent(format!("{detail}; the kubelet has --hostname-override")));
    }
    if !sample.memory.had_node_name {
        return Err(Gap::absent(format!(
            "{detail}, since the agent started: the kubelet may have --hostname-override"
        )));
    }
    sample.value("hostname_mismatch", 1.0, detail);
    Ok(())
}

/// Whether the files of the kubelet's unit name the option.
fn overrides_hostname(host: &Host) -> bool {
    const FOLDERS: [&str; 2] = ["etc/systemd/system", "usr/lib/systemd/system"];
    let of_folder = |folder: &&str| {
        let drop_ins = format!("{folder}/{KUBELET}.d");
        let more = host.names(&drop_ins).into_iter().map(move |name| format!("{drop_ins}/{name}"));
        std::iter::once(format!("{folder}/{KUBELET}")).chain(more)
    };
    let files = FOLDERS.iter().flat_map(of_folder);
    files.filter_map(|file| host.file(&file).ok()).any(|text| text.contains("hostname-override"))
}
