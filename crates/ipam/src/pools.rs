//! pools.json: which VNICs and addresses this node's pods may use. Written by the agent alone, read by plugins.
//!
//! The file is the whole contract between the two. A plugin needs nothing else to set up a pod, so the agent, the API
//! server and the metadata service may all be down.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use vcn::{
    AttachMode, Family, IfName, LinkKindName, MacAddr, Mtu, Ocid, PerFamily, Purpose, TableId, VlanTag, VnicRoute,
};

use crate::{BootId, BootTime, Error, read_state, write_atomically};

/// The file's format. A reader takes any version up to its own; unknown fields are kept.
const VERSION: u32 = 1;
const FILE: &str = "pools.json";

/// The `empty_since` of pools that have had no addresses since the boot.
const SINCE_BOOT: BootTime = BootTime(0);

/// The fields of a VNIC and of its addresses that this build knows: what is not there any more was taken away.
const VNIC_FIELDS: [&str; 10] =
    ["vnicId", "link", "mac", "linkHasMac", "mtu", "table", "purpose", "attach", "ipv4", "ipv6"];
const FAMILY_FIELDS: [&str; 3] = ["router", "reserved", "addresses"];

/// The node's VNICs that pods may use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pools {
    /// The number of the format.
    pub version: u32,
    /// The boot they were written in; of another boot they are void.
    pub boot_id: BootId,
    /// What the agent says when the pools are empty or short ("NativePodNetwork is BACKOFF: …").
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Since when no VNIC has had addresses for pods; 0 where none has had any in this boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub empty_since: Option<BootTime>,
    /// The families that every pod gets, whatever the VNICs can give at this moment; unknown before the first NativePodNetwork.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_families: Option<Vec<Family>>,
    /// The VNICs, in attachment order.
    pub vnics: Vec<VnicPool>,
    /// Fields of a newer version.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// One VNIC and its addresses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", try_from = "VnicDocument")]
pub struct VnicPool {
    /// The OCID of the VNIC.
    pub vnic_id: Ocid,
    /// The host link that carries it.
    pub link: IfName,
    /// The Ethernet address of the VNIC.
    pub mac: MacAddr,
    /// Whether its link must have that one, too. Absent for a bare metal port, which may have
    /// its own address.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub link_has_mac: bool,
    /// What pods on it use as their MTU.
    pub mtu: Mtu,
    /// The routing table of the VNIC.
    pub table: TableId,
    /// Whom it serves; only [`Purpose::Pods`] takes part in the general pool.
    pub purpose: Purpose,
    /// What `vnic-attach` may do with it; only with [`Purpose::Attach`], and only if a VnicAttachment describes the VNIC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attach: Option<AttachOffer>,
    /// Subnet and addresses per family.
    #[serde(flatten)]
    pub families: PerFamily<FamilyPool>,
}

/// What a VNIC offers to pods that request it by name. The agent copies it from the VnicAttachment, and the plugin believes
/// this file alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttachOffer {
    /// The VnicAttachment's `spec.name`, unique on the node.
    pub name: String,
    /// Whether one pod gets the link, or several pods an address each.
    pub mode: AttachMode,
    /// The namespaces whose pods may use it; none if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_namespaces: Vec<String>,
    /// On bare metal, the tag of the VLAN link that the pod gets; `link` is then the physical port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<VlanTag>,
    /// The kind that `link` must have; absent for hardware. Another link may have its name.
    #[serde(default, skip_serializing_if = "LinkKindName::is_hardware")]
    pub link_kind: LinkKindName,
    /// The CIDR blocks of its subnet.
    #[serde(default)]
    pub subnets: PerFamily<IpNetwork>,
    /// Networks that the pod reaches through it in addition to the subnet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<VnicRoute>,
    /// The VNIC is being deleted, shrunk or replaced: no new pod gets it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_leaving: bool,
}

/// A VNIC as every ADD reads it. `serde(flatten)` builds a tree first, which takes twice as long.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct VnicDocument {
    vnic_id: Ocid,
    link: IfName,
    mac: MacAddr,
    #[serde(default)]
    link_has_mac: bool,
    mtu: Mtu,
    table: TableId,
    #[serde(default)]
    purpose: Purpose,
    attach: Option<AttachOffer>,
    ipv4: Option<FamilyPool>,
    ipv6: Option<FamilyPool>,
}

/// A VNIC's addresses of one family.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FamilyPool {
    /// The virtual router of the subnet.
    pub router: IpAddr,
    /// The host's own addresses on this VNIC: never a pod's, even inside a range.
    #[serde(default)]
    pub reserved: Vec<IpAddr>,
    /// Addresses for pods, singly (/32, /128) or as ranges.
    pub addresses: Vec<IpNetwork>,
}

impl Pools {
    /// Pools of this boot.
    pub fn new(boot_id: BootId, vnics: Vec<VnicPool>, reason: Option<String>) -> Self {
        Self { version: VERSION, boot_id, reason, empty_since: None, pod_families: None, vnics, extra: Map::new() }
    }

    /// Reads `pools.json` in `state_dir`.
    ///
    /// # Errors
    /// [`Error::NoPools`] where there are none of this boot; else unreadable, damaged or too new.
    pub fn read(state_dir: &Path, boot: &BootId) -> Result<Self, Error> {
        let path = state_dir.join(FILE);
        let bytes = match read_state(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Error::NoPools { path }),
            Err(source) => return Err(Error::unread(&path, source)),
        };
        let pools: Self =
            serde_json::from_slice(&bytes).map_err(|source| Error::Damaged { path: path.clone(), source })?;
        if pools.version > VERSION {
            return Err(Error::TooNew { path, found: pools.version, known: VERSION });
        }
        if pools.boot_id != *boot {
            return Err(Error::NoPools { path });
        }
        Ok(pools)
    }

    /// Writes `pools.json` in `state_dir`; returns whether it changed. Fields that a newer build wrote for a VNIC
    /// that is still listed stay.
    ///
    /// # Errors
    /// [`Error::Write`]; the old file is then intact.
    pub fn write(&self, state_dir: &Path) -> Result<bool, Error> {
        let path = state_dir.join(FILE);
        let wrap = |source: io::Error| Error::Write { path: path.clone(), source };
        let old = read_state(&path).unwrap_or_default();
        let mut document = serde_json::to_value(self).map_err(|error| wrap(error.into()))?;
        keep_unknown(&mut document, &serde_json::from_slice(&old).unwrap_or_default());
        let mut content = serde_json::to_vec_pretty(&document).map_err(|error| wrap(error.into()))?;
        content.push(b'\n');
        if old == content {
            return Ok(false);
        }
        write_atomically(&path, &content).map_err(wrap)?;
        Ok(true)
    }

    /// The VNIC of an OCID.
    pub fn find(&self, id: &Ocid) -> Option<&VnicPool> {
        self.vnics.iter().find(|vnic| vnic.vnic_id == *id)
    }

    /// The VNICs of the general pool.
    pub fn for_pods(&self) -> impl Iterator<Item = &VnicPool> {
        self.vnics.iter().filter(|vnic| vnic.purpose == Purpose::Pods && !vnic.families.is_empty())
    }

    /// The VNIC that pods can request by this name, and what it offers.
    pub fn named(&self, name: &str) -> Option<(&VnicPool, &AttachOffer)> {
        let attach = self.vnics.iter().filter(|vnic| vnic.purpose == Purpose::Attach);
        attach.filter_map(|vnic| Some((vnic, vnic.attach.as_ref()?))).find(|(_, offer)| offer.name == name)
    }

    /// The same pools where one VNIC is the general pool: a reservation gets an address of each of its families.
    /// Where addresses of a family are `requested`, it has those alone. The other VNICs are still known, so that what is
    /// freed of them is remembered.
    pub fn only(&self, vnic: &VnicPool, requested: &[IpAddr]) -> Self {
        let mut only = VnicPool { purpose: Purpose::Pods, ..vnic.clone() };
        let is_single = only.attach.as_ref().is_some_and(|offer| offer.mode == AttachMode::Exclusive);
        for family in Family::ALL {
            let Some(pool) = only.families.slot(family).as_mut() else { continue };
            let own: Vec<IpAddr> = requested.iter().copied().filter(|ip| Family::of(*ip) == family).collect();
            let narrowed = match own.is_empty() {
                false => Some(own),
                // The first is the VNIC's own; who has that has the VNIC.
                true => is_single.then(|| pool.candidates().take(1).collect()),
            };
            if let Some(addresses) = narrowed {
                pool.addresses = addresses.into_iter().map(IpNetwork::from).collect();
            }
        }
        let mut vnics = self.vnics.clone();
        for other in vnics.iter_mut().filter(|other| other.purpose == Purpose::Pods) {
            other.purpose = Purpose::Host;
        }
        vnics.push(only);
        Self { vnics, pod_families: None, reason: None, ..self.clone() }
    }

    /// For how long no VNIC has had addresses for pods; `None` where none has had any in this boot.
    pub fn empty_for(&self, now: BootTime) -> Option<Duration> {
        self.empty_since.filter(|since| *since != SINCE_BOOT).map(|since| now.since(since))
    }

    /// The same pools, which were `before` until `now`: their emptiness is as old as it is.
    #[must_use]
    pub fn following(mut self, before: Option<&Self>, now: BootTime) -> Self {
        self.empty_since = match before {
            _ if !self.offered().is_empty() => None,
            None => Some(SINCE_BOOT),
            Some(before) if !before.offered().is_empty() => Some(now),
            Some(before) => before.empty_since,
        };
        self
    }

    /// The families a pod gets.
    pub fn families(&self) -> Vec<Family> {
        self.pod_families.clone().filter(|families| !families.is_empty()).unwrap_or_else(|| self.offered())
    }

    /// The families that any VNIC of the general pool has addresses of.
    pub fn offered(&self) -> Vec<Family> {
        let offers = |family| self.for_pods().any(|vnic| vnic.families.of(family).is_some_and(FamilyPool::has_any));
        Family::ALL.into_iter().filter(|&family| offers(family)).collect()
    }
}

impl FamilyPool {
    /// The addresses pods may have, in order, host addresses and the router left out.
    pub fn candidates(&self) -> impl Iterator<Item = IpAddr> {
        let open = |address: &IpAddr| *address != self.router && !self.reserved.contains(address);
        self.addresses.iter().flat_map(IpNetwork::iter).filter(open)
    }

    /// Whether an address is one of this pool's.
    pub fn contains(&self, address: IpAddr) -> bool {
        address != self.router
            && !self.reserved.contains(&address)
            && self.addresses.iter().any(|range| range.contains(address))
    }

    fn has_any(&self) -> bool {
        self.candidates().next().is_some()
    }
}

impl TryFrom<VnicDocument> for VnicPool {
    type Error = String;

    fn try_from(document: VnicDocument) -> Result<Self, String> {
        let VnicDocument { vnic_id, link, mac, link_has_mac, mtu, table, purpose, attach, ipv4, ipv6 } = document;
        let families = PerFamily { ipv4, ipv6 };
        // An address in the other family's place would be given out as both.
        for (family, pool) in families.iter() {
            let ranges = pool.addresses.iter().map(IpNetwork::ip);
            let mut all = ranges.chain(pool.reserved.iter().copied()).chain([pool.router]);
            if let Some(misplaced) = all.find(|address| Family::of(*address) != family) {
                return Err(format!("{misplaced} is not an {family} address"));
            }
        }
        Ok(Self { vnic_id, link, mac, link_has_mac, mtu, table, purpose, attach, families })
    }
}

/// Takes over what the old document says of VNICs that are in both and we know nothing about.
fn keep_unknown(new: &mut Value, old: &Value) {
    let before = old.get("vnics").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for vnic in new.get_mut("vnics").and_then(Value::as_array_mut).into_iter().flatten() {
        let same = |old: &&Value| old.get("vnicId").is_some_and(|id| Some(id) == vnic.get("vnicId"));
        let Some(old) = before.iter().find(same) else { continue };
        take_over(vnic, old, &VNIC_FIELDS);
        for family in ["ipv4", "ipv6"] {
            if let (Some(new), Some(old)) = (vnic.get_mut(family), old.get(family)) {
                take_over(new, old, &FAMILY_FIELDS);
            }
        }
    }
}

fn take_over(new: &mut Value, old: &Value, known: &[&str]) {
    if let (Some(new), Some(old)) = (new.as_object_mut(), old.as_object()) {
        let unknown = old.iter().filter(|(name, _)| !known.contains(&name.as_str()));
        new.extend(unknown.map(|(name, value)| (name.clone(), value.clone())));
    }
}
