//! allocations.json as it is written. It is read and written several times for every pod, so what many allocations share
//! (their VNICs) is written once, and what there is most of (freed addresses) is written shortest.

use std::net::IpAddr;

use cni::{AttachmentKey, ContainerId, NetworkName};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use vcn::{IfName, Ocid, TableId};

use crate::{Allocation, Allocations, Assigned, BootId, BootTime, Freed, NetnsRecord, PodRecord};

/// The file, being read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Document {
    version: u32,
    boot_id: BootId,
    #[serde(default)]
    vnics: Vec<Carrier>,
    allocations: Vec<Entry>,
    freed: Vec<FreedText>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Carrier {
    vnic_id: Ocid,
    link: IfName,
    table: TableId,
}

/// A pair as a rule; with a third element when it says more.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum FreedText {
    Pair(IpAddr, BootTime),
    Forgotten(IpAddr, BootTime, bool),
}

// The key is not a struct of its own here: a flattened struct is buffered, field by field, before it is read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    network: NetworkName,
    container_id: ContainerId,
    ifname: IfName,
    addresses: Vec<(IpAddr, usize)>,
    tentative_until: Option<BootTime>,
    since: BootTime,
    pod: Option<PodRecord>,
    host_link: IfName,
    netns: Option<NetnsRecord>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

/// The file, being written: the same fields, borrowed.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DocumentRef<'a> {
    version: u32,
    boot_id: &'a BootId,
    vnics: Vec<CarrierRef<'a>>,
    allocations: Vec<EntryRef<'a>>,
    freed: Vec<FreedText>,
    #[serde(flatten)]
    extra: &'a Map<String, Value>,
}

#[derive(PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct CarrierRef<'a> {
    vnic_id: &'a str,
    link: &'a str,
    table: TableId,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EntryRef<'a> {
    network: &'a str,
    container_id: &'a str,
    ifname: &'a str,
    /// Each with the position of its VNIC.
    addresses: Vec<(IpAddr, usize)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tentative_until: Option<BootTime>,
    since: BootTime,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<&'a PodRecord>,
    host_link: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    netns: Option<&'a NetnsRecord>,
    #[serde(flatten)]
    extra: &'a Map<String, Value>,
}

/// How an allocation stands in the file that `all` is written as: as it is, and as it is once it lasts. `None` when it is
/// not there or lasts already.
pub(crate) fn before_and_after_commit(all: &Allocations, key: &AttachmentKey) -> Option<(Vec<u8>, Vec<u8>)> {
    let index = all.allocations.iter().position(|held| held.key == *key)?;
    let mut entry = DocumentRef::from(all).allocations.into_iter().nth(index)?;
    let before = serde_json::to_vec(&entry).ok()?;
    entry.tentative_until.take()?;
    Some((before, serde_json::to_vec(&entry).ok()?))
}

impl TryFrom<Document> for Allocations {
    type Error = &'static str;

    fn try_from(document: Document) -> Result<Self, Self::Error> {
        let Document { version, boot_id, vnics, allocations, freed, extra } = document;
        let allocations = allocations.into_iter().map(|entry| entry.with(&vnics)).collect::<Option<_>>();
        let allocations = allocations.ok_or("an address refers to a VNIC that is not in the list")?;
        let freed = freed.into_iter().map(Freed::from).collect();
        Ok(Self { version, boot_id, allocations, freed, extra })
    }
}

impl From<FreedText> for Freed {
    fn from(text: FreedText) -> Self {
        match text {
            FreedText::Pair(address, at) => Self { address, at, forgotten: false },
            FreedText::Forgotten(address, at, forgotten) => Self { address, at, forgotten },
        }
    }
}

impl From<Freed> for FreedText {
    fn from(Freed { address, at, forgotten }: Freed) -> Self {
        match forgotten {
            false => Self::Pair(address, at),
            true => Self::Forgotten(address, at, true),
        }
    }
}

impl Entry {
    fn with(self, vnics: &[Carrier]) -> Option<Allocation> {
        let Self { network, container_id, ifname, addresses, tentative_until, since, pod, host_link, netns, extra } =
            self;
        let assigned = |(address, position): (IpAddr, usize)| {
            let Carrier { vnic_id, link, table } = vnics.get(position)?;
            let (vnic_id, vnic_link) = (vnic_id.clone(), link.clone());
            Some(Assigned { address, vnic_id, vnic_link, table: *table })
        };
        let addresses = addresses.into_iter().map(assigned).collect::<Option<_>>()?;
        let key = AttachmentKey { network, container_id, ifname };
        Some(Allocation { key, addresses, tentative_until, since, pod, host_link, netns, extra })
    }
}

impl<'a> From<&'a Allocations> for DocumentRef<'a> {
    fn from(all: &'a Allocations) -> Self {
        let mut vnics = Vec::new();
        let allocations = all.allocations.iter().map(|allocation| EntryRef::of(allocation, &mut vnics)).collect();
        let freed = all.freed.iter().copied().map(FreedText::from).collect();
        Self { version: all.version, boot_id: &all.boot_id, vnics, allocations, freed, extra: &all.extra }
    }
}

impl<'a> EntryRef<'a> {
    fn of(allocation: &'a Allocation, vnics: &mut Vec<CarrierRef<'a>>) -> Self {
        let Allocation { key, addresses, tentative_until, since, pod, host_link, netns, extra } = allocation;
        let position = |assigned: &'a Assigned| {
            let Assigned { address, vnic_id, vnic_link, table } = assigned;
            let carrier = CarrierRef { vnic_id: vnic_id.as_str(), link: vnic_link.as_str(), table: *table };
            let found = vnics.iter().position(|vnic| *vnic == carrier).unwrap_or_else(|| {
                vnics.push(carrier);
                vnics.len() - 1
            });
            (*address, found)
        };
        Self {
            network: key.network.as_str(),
            container_id: key.container_id.as_str(),
            ifname: key.ifname.as_str(),
            addresses: addresses.iter().map(position).collect(),
            tentative_until: *tentative_until,
            since: *since,
            pod: pod.as_ref(),
            host_link: host_link.as_str(),
            netns: netns.as_ref(),
            extra,
        }
    }
}
