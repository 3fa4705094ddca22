//! What is handed out on this node: which attachment holds which addresses, and which addresses were freed when.

use std::net::IpAddr;
use std::path::PathBuf;

use cni::{AttachmentKey, NetworkName};
use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use vcn::{ExclusiveLink, IfName, LinkIdentity, Mtu, Ocid, PerFamily, TableId, VnicRoute};

use crate::records::name_of;
use crate::{BootId, BootTime, Error};

/// Everything handed out on this node, as far as it was requested (see [`crate::Store::update_for`]).
#[derive(Clone, Debug, PartialEq)]
pub struct Allocations {
    /// The number of the format.
    pub version: u32,
    /// The boot they belong to.
    pub boot_id: BootId,
    /// Those that were requested, in order of creation.
    pub allocations: Vec<Allocation>,
    /// The others, of which only the addresses are known. If all records were read ([`crate::Store::update`]), these have none.
    pub(crate) others: Vec<IndexEntry>,
    /// Addresses freed in this boot, oldest first: they cool down, and are reused in this order.
    pub freed: Vec<FreedAddress>,
    /// Set when the index was rebuilt from the kernel: a pod may have had an unlisted address until then.
    pub(crate) rebuilt_at: Option<BootTime>,
    /// Fields of a newer version.
    pub extra: Map<String, Value>,
}

/// What one attachment holds. Enough to take it down again without the configuration, the pools or the pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Allocation {
    /// Network, container id and link name.
    pub key: AttachmentKey,
    /// The addresses, IPv4 first.
    pub addresses: Vec<AssignedAddress>,
    /// Set while ADD has not finished: after this moment the allocation is void.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tentative_until: Option<BootTime>,
    /// When it was made.
    pub since: BootTime,
    /// The pod, where the runtime named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodRecord>,
    /// The host end of the pod's link.
    pub host_link: IfName,
    /// The pod's namespace at ADD: a hint, because paths are reused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<NetnsRecord>,
    /// The MTU of its link, for repairs; absent in records of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<Mtu>,
    /// What the pod requested; only of an interface of `vnic-attach`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attached: Option<InterfaceRecord>,
    /// The link that is in the pod; only where that is the VNIC's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclusive: Option<ExclusiveLink>,
    /// When DEL ended the pod and the VNIC's link was not on the host: another namespace has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreturned_since: Option<BootTime>,
}

/// What a pod requested and got in addition to its addresses: enough to check the interface, even if the offer changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InterfaceRecord {
    /// The network of the configuration that the plugin was called with: only that network's GC may call it dead.
    pub network: NetworkName,
    /// The name of the VNIC in the pod's annotation.
    pub vnic: String,
    /// The CIDR blocks of its subnet.
    #[serde(default)]
    pub subnets: PerFamily<IpNetwork>,
    /// Other networks that the pod reaches through it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<VnicRoute>,
    /// The pod's connections leave by it unless another route is more specific.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub default_route: bool,
}

/// An address and what carries it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AssignedAddress {
    /// The address that the pod has.
    pub address: IpAddr,
    /// The OCID of the VNIC of this address.
    pub vnic_id: Ocid,
    /// The host link of the VNIC at ADD.
    pub vnic_link: IfName,
    /// The VNIC's routing table at ADD.
    pub table: TableId,
}

/// The pod an attachment belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodRecord {
    /// The namespace of the Pod object.
    pub namespace: String,
    /// The name of the Pod object.
    pub name: String,
    /// Pod UID, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// A network namespace as found at ADD.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetnsRecord {
    /// The path the runtime gave.
    pub path: PathBuf,
    /// The device of the nsfs.
    pub dev: u64,
    /// The inode, which tells namespaces apart as long as they live.
    pub inode: u64,
}

/// An address that was freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreedAddress {
    /// The address that was freed.
    pub address: IpAddr,
    /// When it was freed, in the time since boot.
    pub at: BootTime,
    /// The kernel has forgotten the connections of its last holder, and none can reappear. Otherwise the next ADD of the address
    /// deletes them first.
    pub forgotten: bool,
}

/// An allocation in the index: what the choice of other addresses needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    /// The name of its record.
    pub(crate) name: String,
    pub(crate) addresses: Vec<IpAddr>,
}

impl Allocations {
    /// The format this build writes.
    pub(crate) const VERSION: u32 = 1;

    /// None, in this boot.
    pub fn none(boot_id: BootId) -> Self {
        Self {
            version: Self::VERSION,
            boot_id,
            allocations: Vec::new(),
            others: Vec::new(),
            freed: Vec::new(),
            rebuilt_at: None,
            extra: Map::new(),
        }
    }

    /// Whether nothing was handed out in this boot, by this record.
    pub const fn is_empty(&self) -> bool {
        self.allocations.is_empty() && self.others.is_empty() && self.freed.is_empty()
    }

    /// The allocation of an attachment.
    pub fn find(&self, key: &AttachmentKey) -> Option<&Allocation> {
        self.allocations.iter().find(|allocation| allocation.key == *key)
    }

    /// Marks an allocation as lasting: ADD succeeded.
    ///
    /// # Errors
    /// [`Error::NoAllocation`] when a DEL overtook the ADD.
    pub fn commit(&mut self, key: &AttachmentKey) -> Result<(), Error> {
        self.settle(key).map(drop)
    }

    /// The same, with what identifies the VNIC's link in the pod.
    ///
    /// # Errors
    /// As [`Self::commit`].
    pub fn commit_link(&mut self, key: &AttachmentKey, identity: LinkIdentity) -> Result<(), Error> {
        let allocation = self.settle(key)?;
        allocation.unreturned_since = None;
        if let Some(link) = &mut allocation.exclusive {
            link.identity = Some(identity);
        }
        Ok(())
    }

    /// Notes that the pod is gone and the VNIC's link is not back. The addresses stay taken, and with them the VNIC.
    ///
    /// # Errors
    /// As [`Self::commit`].
    pub fn note_unreturned(&mut self, key: &AttachmentKey, now: BootTime) -> Result<(), Error> {
        self.settle(key)?.unreturned_since.get_or_insert(now);
        Ok(())
    }

    fn settle(&mut self, key: &AttachmentKey) -> Result<&mut Allocation, Error> {
        let allocation = self.allocations.iter_mut().find(|allocation| allocation.key == *key);
        let allocation = allocation.ok_or_else(|| Error::NoAllocation(key.to_string()))?;
        allocation.tentative_until = None;
        Ok(allocation)
    }

    /// Whether an attachment holds addresses without a record: an ADD or a DEL of it was killed, or the record was lost.
    pub fn lacks_record(&self, key: &AttachmentKey) -> bool {
        let name = name_of(key);
        self.find(key).is_none() && self.others.iter().any(|held| held.name == name)
    }

    /// Frees what an attachment holds, with a record or without; its addresses start to cool down. Releasing nothing is
    /// fine: DEL is idempotent.
    pub fn release(&mut self, key: &AttachmentKey, now: BootTime) -> Option<Allocation> {
        self.release_unrecorded(&name_of(key), now);
        let index = self.allocations.iter().position(|allocation| allocation.key == *key)?;
        let allocation = self.allocations.remove(index);
        self.cool(&allocation.held(), now);
        Some(allocation)
    }

    /// Notes that the connections of a freed address are forgotten. Only if it has been free since `at`:
    /// otherwise another pod had it meanwhile and may have left connections. Returns whether it was noted.
    pub fn forget(&mut self, address: IpAddr, at: BootTime) -> bool {
        match self.freed.iter_mut().find(|freed| freed.address == address && freed.at == at) {
            Some(freed) => {
                freed.forgotten = true;
                true
            }
            None => false,
        }
    }

    /// Frees what an entry without record holds.
    pub(crate) fn release_unrecorded(&mut self, name: &str, now: BootTime) {
        let entries: Vec<IndexEntry> = self.others.extract_if(.., |held| held.name == name).collect();
        entries.iter().for_each(|held| self.cool(&held.addresses, now));
    }

    pub(crate) fn cool(&mut self, addresses: &[IpAddr], now: BootTime) {
        self.freed.retain(|freed| !addresses.contains(&freed.address));
        self.freed.extend(addresses.iter().map(|&address| FreedAddress { address, at: now, forgotten: false }));
    }
}

impl Allocation {
    /// A request for addresses: an allocation that has none yet. A caller may set `mtu`, the upper limit for the link.
    pub fn requested(key: AttachmentKey, host_link: IfName) -> Self {
        Self {
            key,
            addresses: Vec::new(),
            tentative_until: None,
            since: BootTime::default(),
            pod: None,
            host_link,
            netns: None,
            mtu: None,
            attached: None,
            exclusive: None,
            unreturned_since: None,
        }
    }

    /// The pod that holds it, or its container if no pod is known.
    pub fn holder(&self) -> String {
        match &self.pod {
            Some(pod) => format!("{}/{}", pod.namespace, pod.name),
            None => self.key.container_id.to_string(),
        }
    }

    pub(crate) fn held(&self) -> Vec<IpAddr> {
        self.addresses.iter().map(|assigned| assigned.address).collect()
    }
}
