//! The running VCN: its parts and their state. Subnets and nodes are built in `build.rs`,
//! VNICs come and go in `attach.rs`,
//! their addresses in `assign.rs`.

mod addresses;
mod assign;
mod attach;
mod build;
mod builder;
pub(crate) mod identity;
mod inventory;
mod spec;
mod subnet;
mod vnic;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ipnetwork::IpNetwork;
use vcn::MacAddr;

use crate::error::{Error, Result};
use crate::fabric::wire::Switch;
use crate::fabric::{Dropped, Policy};
use crate::node::{Node, Spawner};
use crate::services::Services;
use addresses::Addresses;

pub(crate) use addresses::width;
pub(crate) use assign::RequestedBlock;
pub use builder::Builder;
pub(crate) use inventory::{Instance, Inventory};
pub use spec::{NodeSpec, SubnetSpec, VnicSpec};
pub use subnet::Subnet;
pub use vnic::Vnic;

/// An emulated VCN. Everything ends with it: nodes, pods, the programs in them.
#[derive(Debug)]
pub struct Vcn {
    /// `None`: every instance is on paper.
    wiring: Option<Wiring>,
    nodes: BTreeMap<String, (Arc<Node>, Vec<PhysicalPort>)>,
    inventory: Inventory,
    registry: Mutex<Registry>,
    /// Held while a VNIC or an address comes or goes: one at a time.
    changing: Mutex<()>,
    changes: AtomicU64,
}

/// What connects nodes: namespaces, links and programs.
#[derive(Debug)]
struct Wiring {
    spawner: Arc<Spawner>,
    services: Services,
    switch: Switch,
}

/// A port of a bare-metal node. A virtual machine has one wire per VNIC instead ([`crate::Vnic`]).
#[derive(Clone, Debug)]
struct PhysicalPort {
    wire: u32,
    mac: MacAddr,
}

/// Subnets, their addresses in use, and counters.
#[derive(Debug, Default)]
struct Registry {
    instances: u32,
    vnics: u32,
    subnets: BTreeMap<String, Arc<Subnet>>,
    /// Subnets of one VCN do not overlap, so a block is enough to find an address.
    addresses: BTreeMap<IpNetwork, Addresses>,
}

impl Vcn {
    /// A fabric and services, nothing else.
    pub(crate) fn empty() -> Result<Self> {
        let mut vcn = Self::on_paper();
        let services = Services::namespace()?;
        let switch = Switch::start(&services)?;
        let services = Services::start(services, vcn.inventory.clone())?;
        vcn.wiring = Some(Wiring { spawner: Arc::new(Spawner::start()?), services, switch });
        Ok(vcn)
    }

    /// A VCN without a network: an inventory for the OCI API. It needs no privilege.
    pub(crate) fn on_paper() -> Self {
        Self {
            wiring: None,
            nodes: BTreeMap::new(),
            inventory: Inventory::default(),
            registry: Mutex::default(),
            changing: Mutex::default(),
            changes: AtomicU64::new(0),
        }
    }

    /// The node of this name.
    pub fn node(&self, name: &str) -> Result<Arc<Node>> {
        self.nodes.get(name).map(|(node, _)| Arc::clone(node)).ok_or_else(|| Error::NoNode(name.to_owned()))
    }

    /// All nodes, by name.
    pub fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> + '_ {
        self.nodes.values().map(|(node, _)| node)
    }

    /// The subnet of this name.
    pub fn subnet(&self, name: &str) -> Result<Arc<Subnet>> {
        self.registry().subnets.get(name).cloned().ok_or_else(|| Error::Invalid(format!("no subnet is named {name:?}")))
    }

    /// All subnets, by name.
    pub fn subnets(&self) -> Vec<Arc<Subnet>> {
        self.registry().subnets.values().cloned().collect()
    }

    pub(crate) fn subnet_by_id(&self, id: &str) -> Option<Arc<Subnet>> {
        self.registry().subnets.values().find(|subnet| subnet.id.as_str() == id).cloned()
    }

    /// What the fabric dropped so far, and why.
    pub fn drops(&self) -> Vec<Dropped> {
        self.wiring.as_ref().map(|wiring| wiring.switch.drops()).unwrap_or_default()
    }

    /// Replaces what the VCN does not let pass.
    pub fn set_policy(&self, policy: Policy) -> Result<()> {
        self.wiring()?.switch.set_policy(policy);
        Ok(())
    }

    /// Lets the resolver answer so many queries of UDP in any second, and no more; `None` ends that. With 0 it answers none, of TCP
    /// neither.
    pub fn limit_dns(&self, per_second: Option<u32>) -> Result<()> {
        self.wiring()?.services.limit_dns(per_second);
        Ok(())
    }

    /// Takes the carrier of a virtual machine's link away, or gives it back.
    pub fn set_carrier(&self, node: &str, link: &str, carrier: bool) -> Result<()> {
        let vnics = self.node(node)?.vnics();
        let vnic = vnics.iter().find(|vnic| vnic.link.as_str() == link);
        let vnic = vnic.ok_or_else(|| Error::Invalid(format!("{node} has no VNIC on a link {link}")))?;
        self.wiring()?.switch.set_carrier(vnic.port.wire, carrier)
    }

    pub(crate) fn services(&self) -> Result<&Services> {
        Ok(&self.wiring()?.services)
    }

    fn wiring(&self) -> Result<&Wiring> {
        self.wiring.as_ref().ok_or_else(|| Error::Invalid("this VCN has no network, only an inventory".to_owned()))
    }

    /// All there is, for the OCI API.
    pub(crate) const fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// How often a VNIC or an address came or went.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    fn next_vnic_number(&self) -> u32 {
        let mut registry = self.registry();
        registry.vnics += 1;
        registry.vnics
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        // Every change is complete in itself, so a panic elsewhere leaves it usable.
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Vcn {
    fn drop(&mut self) {
        // Programs first, also those of nodes that a test still holds: then what they talk to.
        if let Some(wiring) = &self.wiring {
            wiring.spawner.stop();
        }
    }
}
