//! Each pod's interface as its record and the kernel tell it, with what is wrong: the same whether an agent runs or not.

use std::net::IpAddr;
use std::path::Path;

use datapath::Places;
use datapath::pods::Observed;
use ipam::{Allocation, BootId, BootTime, Pools, Store};
use netlink::{Link, Socket};
use resident::logging::chain;
use serde::{Deserialize, Serialize};
use vcn::{IfName, Ocid, TableId};

use crate::reconcile::pods::network;

/// One pod's interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attachment {
    /// `namespace/name`, where the runtime told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// The pod's UID, where the runtime told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    /// The network.
    pub network: String,
    /// The container (the sandbox's).
    pub container: String,
    /// The interface in the pod.
    pub interface: IfName,
    /// Its addresses.
    pub addresses: Vec<Held>,
    /// The host end of its link.
    pub host_link: IfName,
    /// Seconds since it got its addresses.
    pub age_seconds: u64,
    /// How far it is.
    pub state: State,
    /// What is wrong with it, in words.
    pub problems: Vec<String>,
}

/// An address and what carries it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Held {
    /// The address.
    pub address: IpAddr,
    /// Its VNIC.
    pub vnic_id: Ocid,
    /// The VNIC's link.
    pub vnic_link: IfName,
    /// The VNIC's table.
    pub table: TableId,
}

/// How far an attachment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Its ADD has finished.
    Running,
    /// Its ADD has not finished yet.
    Adding,
    /// Its ADD never finished; its addresses are free as soon as somebody wants them.
    Void,
    /// Its ADD has finished and its link is gone: the pod died, and no DEL has come.
    LinkGone,
}

/// What the host has, asked once for all.
struct Host {
    links: Vec<Link>,
    observed: Observed,
    places: Places,
}

/// All attachments whose records can be read, in the order of their making.
///
/// # Errors
/// When none can be read although there are some, or the kernel does not answer, in words.
pub fn read(state_dir: &Path, sysctl_root: &Path, boot: &BootId) -> Result<Vec<Attachment>, String> {
    let (held, damaged) = Store::new(state_dir, boot.clone()).read_sound().map_err(|error| chain(&error))?;
    if held.allocations.is_empty() {
        return damaged.map_or_else(|| Ok(Vec::new()), |error| Err(chain(&error)));
    }
    let now = BootTime::now().map_err(|error| chain(&error))?;
    // Of another boot or none at all: then every address is in none.
    let pools = Pools::read(state_dir, boot).ok();
    let host = look(sysctl_root)?;
    Ok(held.allocations.iter().map(|allocation| of(allocation, &host, pools.as_ref(), now)).collect())
}

impl State {
    /// Its word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Adding => "adding",
            Self::Void => "void",
            Self::LinkGone => "link-gone",
        }
    }
}

fn look(sysctl_root: &Path) -> Result<Host, String> {
    let links = Socket::open().and_then(|mut socket| socket.links()).map_err(|error| chain(&error))?;
    let mut places = Places::host(sysctl_root).map_err(|error| chain(&error))?;
    let observed = Observed::look(&mut places).map_err(|error| chain(&error))?;
    Ok(Host { links, observed, places })
}

fn of(allocation: &Allocation, host: &Host, pools: Option<&Pools>, now: BootTime) -> Attachment {
    let mut problems = Vec::new();
    let pool_of = |id: &Ocid| pools.and_then(|pools| pools.vnics.iter().find(|vnic| vnic.vnic_id == *id));
    let link_of = |id: &Ocid| pool_of(id).map(|vnic| vnic.link.clone());
    let network = network(allocation, link_of);
    let state = match allocation.tentative_until {
        Some(until) if until < now => State::Void,
        Some(_) => State::Adding,
        None => match host.observed.repairs(&network, allocation.mtu, &host.places) {
            Some(steps) => {
                problems.extend(steps.iter().map(|step| format!("lacks on the host: {step}")));
                State::Running
            }
            None => State::LinkGone,
        },
    };
    match state {
        State::LinkGone => problems.push(link_gone(allocation, &network.ends.alias, host)),
        State::Void => {
            problems.push("its ADD never finished; the addresses are taken back when they are wanted".into())
        }
        State::Adding | State::Running => {}
    }
    let mut links: Vec<&IfName> = network.addresses.iter().map(|address| &address.vnic_link).collect();
    links.dedup();
    problems.extend(links.iter().filter_map(|name| vnic_link(name, host)));
    for held in &allocation.addresses {
        let known = pool_of(&held.vnic_id)
            .is_some_and(|vnic| vnic.families.iter().any(|(_, pool)| pool.contains(held.address)));
        if !known {
            problems.push(format!("{} is in no pool of this node any more: nothing sends it here", held.address));
        }
    }
    Attachment {
        pod: allocation.pod.as_ref().map(|pod| format!("{}/{}", pod.namespace, pod.name)),
        pod_uid: allocation.pod.as_ref().and_then(|pod| pod.uid.clone()),
        network: allocation.key.network.to_string(),
        container: allocation.key.container_id.to_string(),
        interface: allocation.key.ifname.clone(),
        addresses: allocation.addresses.iter().map(held).collect(),
        host_link: allocation.host_link.clone(),
        age_seconds: now.since(allocation.since).as_secs(),
        state,
        problems,
    }
}

fn held(assigned: &ipam::Assigned) -> Held {
    Held {
        address: assigned.address,
        vnic_id: assigned.vnic_id.clone(),
        vnic_link: assigned.vnic_link.clone(),
        table: assigned.table,
    }
}

fn link_gone(allocation: &Allocation, alias: &str, host: &Host) -> String {
    let name = &allocation.host_link;
    if host.links.iter().any(|link| link.name == *name) {
        return format!("the link {name} is another's: its alias is not {alias}");
    }
    format!(
        "its host link {name} is gone: the pod died and the runtime has not called DEL; `ip link` in the pod shows nothing either"
    )
}

fn vnic_link(name: &IfName, host: &Host) -> Option<String> {
    match host.links.iter().find(|link| link.name == *name) {
        None => Some(format!("its VNIC's link {name} is gone: the pod is cut off")),
        Some(link) if !link.up => Some(format!("its VNIC's link {name} is down: the pod is cut off")),
        Some(link) if !link.running => Some(format!("its VNIC's link {name} has no carrier: the pod is cut off")),
        Some(_) => None,
    }
}
