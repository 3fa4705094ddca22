//! The interfaces of pods, from their records and the kernel, with their problems.

use std::error::Error;
use std::path::Path;

use datapath::pod::{PodNetwork, Uplink};
use datapath::{Places, Snapshot, pods, route_check};
use ipam::{Allocation, AssignedAddress, BootId, BootTime, Pools, Store};
use netlink::Link;
use serde::{Deserialize, Serialize};
use vcn::{Family, IfName, Ocid, words};

use crate::decide::pods::{is_dead, network};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Attachment {
    /// `namespace/name`, if the runtime named the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// The pod's UID, if the runtime named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    pub network: String,
    /// The container (the pod's sandbox).
    pub container: String,
    /// The interface in the pod.
    pub interface: IfName,
    pub addresses: Vec<AssignedAddress>,
    pub host_link: IfName,
    /// Seconds since it got its addresses.
    pub age_seconds: u64,
    pub state: AttachmentState,
    pub problems: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AttachmentState {
    /// Its ADD has finished.
    Running,
    /// Its ADD has not finished yet.
    Adding,
    /// Its ADD never finished; its addresses are reused when another pod needs them.
    Void,
    /// Its ADD has finished and its link is gone: another program deleted it, or the pod died without a DEL.
    LinkGone,
}

/// The kernel's state, read once for all attachments.
struct HostView {
    seen: Snapshot,
    places: Places,
}

/// All attachments whose records can be read, oldest first.
/// An error if there are records and none can be read.
pub(crate) fn read(
    state_dir: &Path,
    sysctl_root: &Path,
    boot: &BootId,
) -> Result<Vec<Attachment>, Box<dyn Error + Send + Sync>> {
    let (recorded, damaged) = Store::new(state_dir, boot.clone()).read_sound()?;
    if recorded.allocations.is_empty() {
        return damaged.map_or_else(|| Ok(Vec::new()), |error| Err(error.into()));
    }
    let now = BootTime::now()?;
    // Without pools of this boot every address is in none.
    let pools = Pools::read(state_dir, boot).ok();
    let mut places = Places::host(sysctl_root)?;
    let mut host = HostView { seen: Snapshot::of_host(&mut places)?, places };
    Ok(recorded.allocations.iter().map(|allocation| attachment(allocation, &mut host, pools.as_ref(), now)).collect())
}

words!(AttachmentState: Running = "running", Adding = "adding", Void = "void", LinkGone = "link-gone");

fn attachment(allocation: &Allocation, host: &mut HostView, pools: Option<&Pools>, now: BootTime) -> Attachment {
    let mut problems = Vec::new();
    let pool_of = |id: &Ocid| pools.and_then(|pools| pools.vnics.iter().find(|vnic| vnic.vnic_id == *id));
    let link_of = |id: &Ocid| pool_of(id).map(|vnic| vnic.link.clone());
    let network = network(allocation, link_of);
    let state = match allocation.tentative_until {
        Some(until) if until < now => AttachmentState::Void,
        Some(_) => AttachmentState::Adding,
        None if allocation.exclusive.is_some() => exclusive(allocation, &host.seen.links),
        None => match pods::repairs(&host.seen, &network, allocation.mtu, &host.places) {
            Some(steps) => {
                problems.extend(steps.iter().map(|step| format!("missing on the host: {step}")));
                // Where something is missing, wrong routes follow from that.
                if steps.is_empty() {
                    problems.extend(misrouted(allocation, &network, pools, &mut host.places));
                }
                AttachmentState::Running
            }
            None => AttachmentState::LinkGone,
        },
    };
    match state {
        AttachmentState::LinkGone if allocation.unreturned_since.is_some() => {
            problems.push(attachment::link_missing(allocation));
        }
        AttachmentState::LinkGone if allocation.exclusive.is_some() => {
            problems.push("the VNIC's link is back on the host: the pod died without a DEL".into());
        }
        AttachmentState::LinkGone => problems.push(link_gone(allocation, &network.ends.alias, host)),
        AttachmentState::Void => {
            problems.push("its ADD never finished; its addresses are reused when another pod needs them".into())
        }
        AttachmentState::Adding | AttachmentState::Running => {}
    }
    let mut links: Vec<&IfName> = network.addresses.iter().map(|address| &address.vnic_link).collect();
    links.retain(|_| allocation.exclusive.is_none());
    links.dedup();
    problems.extend(links.iter().filter_map(|name| vnic_link(name, host)));
    for assigned in &allocation.addresses {
        let known = pool_of(&assigned.vnic_id)
            .is_some_and(|vnic| vnic.families.iter().any(|(_, pool)| pool.contains(assigned.address)));
        if !known {
            problems.push(format!("{} is in no pool of this node: no packet for it arrives", assigned.address));
        }
    }
    Attachment {
        pod: allocation.pod.as_ref().map(|pod| format!("{}/{}", pod.namespace, pod.name)),
        pod_uid: allocation.pod.as_ref().and_then(|pod| pod.uid.clone()),
        network: allocation.key.network.to_string(),
        container: allocation.key.container_id.to_string(),
        interface: allocation.key.ifname.clone(),
        addresses: allocation.addresses.clone(),
        host_link: allocation.host_link.clone(),
        age_seconds: now.since(allocation.since).as_secs(),
        state,
        problems,
    }
}

/// The state of an attachment with a VNIC's own link, which is in its pod until the pod ends.
fn exclusive(allocation: &Allocation, links: &[Link]) -> AttachmentState {
    let nics = allocation.exclusive.as_ref().map(|own| own.kind.clone()).unwrap_or_default();
    match allocation.unreturned_since.is_some() || is_dead(allocation, links, &nics) {
        true => AttachmentState::LinkGone,
        false => AttachmentState::Running,
    }
}

/// Packets of the pod that another program's rules or routes lead another way.
fn misrouted(allocation: &Allocation, network: &PodNetwork, pools: Option<&Pools>, places: &mut Places) -> Vec<String> {
    let uplink = |held: &AssignedAddress| {
        let vnic = pools?.vnics.iter().find(|vnic| vnic.vnic_id == held.vnic_id)?;
        let router = vnic.families.of(Family::of(held.address))?.router;
        Some(Uplink { link: vnic.link.clone(), mac: None, table: held.table, router })
    };
    let uplinks: Vec<Uplink> = allocation.addresses.iter().filter_map(uplink).collect();
    let wrong = route_check::of_pod(network, &uplinks, places).unwrap_or_default();
    wrong.iter().map(ToString::to_string).collect()
}

fn link_gone(allocation: &Allocation, alias: &str, host: &HostView) -> String {
    let name = &allocation.host_link;
    if host.seen.links.iter().any(|link| link.name == *name) {
        return format!("the link {name} belongs to another attachment: its alias is not {alias}");
    }
    format!(
        "its host link {name} is gone without a DEL: another program deleted it, or the pod died; if the pod runs, delete it"
    )
}

fn vnic_link(name: &IfName, host: &HostView) -> Option<String> {
    match host.seen.links.iter().find(|link| link.name == *name) {
        None => Some(format!("the VNIC's link {name} is gone: the pod has no network")),
        Some(link) if !link.up => Some(format!("the VNIC's link {name} is down: the pod has no network")),
        Some(link) if !link.running => Some(format!("the VNIC's link {name} has no carrier: the pod has no network")),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture::link;

    #[test]
    fn pod_with_an_exclusive_vnic_runs_until_the_link_is_back() {
        let allocation: Allocation = serde_json::from_value(json!({
            "key": {"network": "vnic-attach", "containerId": "a", "ifname": "net1"}, "addresses": [], "since": 1,
            "hostLink": "vcn000000000000", "exclusive": {"link": "ens6", "mac": link("ens6", 0x0c).mac.unwrap()},
        }))
        .unwrap();
        assert_eq!(exclusive(&allocation, &[link("ens3", 0x0a)]), AttachmentState::Running);
        assert_eq!(exclusive(&allocation, &[link("ens6", 0x0c)]), AttachmentState::LinkGone);
    }
}
