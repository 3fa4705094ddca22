//! The instances of the VCN: the one list that the metadata service, DNS, the OCI API and the builder use.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value};
use vcn::{MachineKind, Ocid};

use crate::network::Vnic;
use crate::oci::Authority;
use crate::services::MetadataFault;

/// An instance, as the services know it.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    pub(crate) name: String,
    pub(crate) id: Ocid,
    pub(crate) compartment: Ocid,
    pub(crate) kind: MachineKind,
    pub(crate) shape: String,
    pub(crate) max_vnics: u32,
    pub(crate) metadata: BTreeMap<String, String>,
    /// The primary one first, then as they were attached.
    pub(crate) vnics: Vec<Vnic>,
    pub(crate) fault: Option<MetadataFault>,
    /// Whether there is no node: an instance of the inventory only.
    pub(crate) on_paper: bool,
    /// Fields of its document in the OCI API that differ from the default ones.
    pub(crate) fields: Map<String, Value>,
}

impl Instance {
    pub(crate) fn primary(&self) -> Option<&Vnic> {
        self.vnics.first()
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Inventory {
    instances: Arc<Mutex<BTreeMap<String, Instance>>>,
    /// Signs instances' certificates, once there is an OCI API.
    authority: Arc<Mutex<Option<Arc<Authority>>>>,
}

impl Inventory {
    pub(crate) fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Instance>> {
        // Every change is one assignment, so a panic elsewhere leaves it whole.
        self.instances.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives instances certificates of this authority.
    pub(crate) fn set_authority(&self, authority: Arc<Authority>) {
        *self.authority.lock().unwrap_or_else(PoisonError::into_inner) = Some(authority);
    }

    pub(crate) fn authority(&self) -> Option<Arc<Authority>> {
        self.authority.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The instance of an OCID.
    pub(crate) fn by_id(&self, id: &str) -> Option<Instance> {
        self.lock().values().find(|instance| instance.id.as_str() == id).cloned()
    }

    /// The name of the instance whose primary VNIC has an address.
    pub(crate) fn holder_of_primary(&self, address: IpAddr) -> Option<String> {
        self.lock()
            .values()
            .find(|instance| instance.primary().is_some_and(|vnic| vnic.address.iter().any(|(_, own)| *own == address)))
            .map(|instance| instance.name.clone())
    }
}
