//! allocations.json: which attachment holds which addresses, and which addresses were freed when.

use std::net::IpAddr;
use std::path::PathBuf;

use cni::AttachmentKey;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};
use vcn::{IfName, Ocid, TableId};

use crate::wire::{Document, DocumentRef};
use crate::{BootId, BootTime, Error};

/// Everything handed out on this node. How it is written is [`crate::wire`]'s business.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Document")]
pub struct Allocations {
    /// Format version.
    pub version: u32,
    /// The boot they belong to.
    pub boot_id: BootId,
    /// In order of creation.
    pub allocations: Vec<Allocation>,
    /// Addresses freed in this boot, oldest first: they cool down, and are reused in this order.
    pub freed: Vec<Freed>,
    /// Fields of a newer version.
    pub extra: Map<String, Value>,
}

/// What one attachment holds. Enough to take it down again without the configuration, the pools or the pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Allocation {
    /// Network, container id and link name.
    pub key: AttachmentKey,
    /// The addresses, IPv4 first.
    pub addresses: Vec<Assigned>,
    /// Set while ADD has not finished: after this moment the allocation is void.
    pub tentative_until: Option<BootTime>,
    /// When it was made.
    pub since: BootTime,
    /// The pod, where the runtime named it.
    pub pod: Option<PodRecord>,
    /// The host end of the pod's link.
    pub host_link: IfName,
    /// The pod's namespace at ADD: a hint, because paths are reused.
    pub netns: Option<NetnsRecord>,
    /// Fields of a newer version.
    pub extra: Map<String, Value>,
}

/// An address and what carries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assigned {
    /// The address.
    pub address: IpAddr,
    /// Its VNIC.
    pub vnic_id: Ocid,
    /// The host link of the VNIC at ADD.
    pub vnic_link: IfName,
    /// The VNIC's routing table at ADD.
    pub table: TableId,
}

/// The pod an attachment belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodRecord {
    /// Kubernetes namespace.
    pub namespace: String,
    /// Pod name.
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
pub struct Freed {
    /// The address.
    pub address: IpAddr,
    /// When.
    pub at: BootTime,
    /// Whether the connections of its last holder are known to be forgotten by the kernel: flushed when nothing could
    /// make them anew any more. Else whoever gets the address next flushes them first.
    pub forgotten: bool,
}

impl Serialize for Allocations {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        DocumentRef::from(self).serialize(serializer)
    }
}

impl Allocations {
    /// The format this build writes.
    pub(crate) const VERSION: u32 = 1;

    /// None, in this boot.
    #[must_use]
    pub fn none(boot_id: BootId) -> Self {
        Self { version: Self::VERSION, boot_id, allocations: Vec::new(), freed: Vec::new(), extra: Map::new() }
    }

    /// Whether nothing was handed out in this boot, by this record.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.allocations.is_empty() && self.freed.is_empty()
    }

    /// The allocation of an attachment.
    #[must_use]
    pub fn find(&self, key: &AttachmentKey) -> Option<&Allocation> {
        self.allocations.iter().find(|allocation| allocation.key == *key)
    }

    /// Marks an allocation as lasting: ADD succeeded.
    ///
    /// # Errors
    /// [`Error::NoAllocation`] when a DEL overtook the ADD.
    pub fn commit(&mut self, key: &AttachmentKey) -> Result<(), Error> {
        match self.allocations.iter_mut().find(|allocation| allocation.key == *key) {
            Some(allocation) => {
                allocation.tentative_until = None;
                Ok(())
            }
            None => Err(Error::NoAllocation(key.to_string())),
        }
    }

    /// Frees what an attachment holds; its addresses start to cool down. Releasing nothing is fine: DEL is idempotent.
    pub fn release(&mut self, key: &AttachmentKey, now: BootTime) -> Option<Allocation> {
        let index = self.allocations.iter().position(|allocation| allocation.key == *key)?;
        let allocation = self.allocations.remove(index);
        self.cool(&allocation, now);
        Some(allocation)
    }

    /// Notes that the connections of a freed address are forgotten. Only if it is still free, and has been since `at`:
    /// otherwise somebody had it meanwhile, and may have left connections of his own. Answers whether it was noted.
    pub fn forget(&mut self, address: IpAddr, at: BootTime) -> bool {
        match self.freed.iter_mut().find(|freed| freed.address == address && freed.at == at) {
            Some(freed) => {
                freed.forgotten = true;
                true
            }
            None => false,
        }
    }

    pub(crate) fn cool(&mut self, allocation: &Allocation, now: BootTime) {
        for assigned in &allocation.addresses {
            self.freed.retain(|freed| freed.address != assigned.address);
            self.freed.push(Freed { address: assigned.address, at: now, forgotten: false });
        }
    }
}
