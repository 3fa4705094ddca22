//! The running VCN: its parts and what can be asked about them. Subnets and nodes are made in `emulation/build.rs`,
//! VNICs and addresses come and go in `emulation/attach.rs`.

mod attach;
mod build;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ipnetwork::IpNetwork;
use vcn::MacAddr;

use crate::Subnet;
use crate::addresses::Addresses;
use crate::command::Spawner;
use crate::error::{Error, Result};
use crate::fabric::Dropped;
use crate::inventory::Inventory;
use crate::node::Node;
use crate::services::Services;
use crate::wire::Switch;

/// An emulated VCN. Everything ends with it: nodes, pods, the programs in them.
#[derive(Debug)]
pub struct Vcn {
    spawner: Arc<Spawner>,
    services: Services,
    nodes: BTreeMap<String, (Arc<Node>, Wires)>,
    switch: Switch,
    inventory: Inventory,
    subnets: BTreeMap<String, Arc<Subnet>>,
    books: Mutex<Books>,
    /// Held while a VNIC or an address comes or goes: one at a time.
    changing: Mutex<()>,
    changes: AtomicU64,
}

/// A node's wires: of a virtual machine one per VNIC (in [`crate::Vnic`]), of bare metal one per physical port.
#[derive(Debug, Default)]
struct Wires {
    ports: Vec<PhysicalPort>,
}

#[derive(Clone, Debug)]
struct PhysicalPort {
    wire: u32,
    mac: MacAddr,
}

/// Counters and address books.
#[derive(Debug, Default)]
struct Books {
    instances: u32,
    vnics: u32,
    addresses: BTreeMap<(String, IpNetwork), Addresses>,
}

impl Vcn {
    /// A fabric and services, nothing else.
    pub(crate) fn empty() -> Result<Self> {
        let spawner = Arc::new(Spawner::start()?);
        let inventory = Inventory::default();
        let services = Services::namespace()?;
        let switch = Switch::start(&services)?;
        Ok(Self {
            spawner,
            services: Services::start(services, inventory.clone())?,
            nodes: BTreeMap::new(),
            switch,
            inventory,
            subnets: BTreeMap::new(),
            books: Mutex::default(),
            changing: Mutex::default(),
            changes: AtomicU64::new(0),
        })
    }

    /// A node.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn node(&self, name: &str) -> Result<Arc<Node>> {
        self.nodes.get(name).map(|(node, _)| Arc::clone(node)).ok_or_else(|| Error::NoNode(name.to_owned()))
    }

    /// All nodes, by name.
    pub fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> + '_ {
        self.nodes.values().map(|(node, _)| node)
    }

    /// A subnet.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn subnet(&self, name: &str) -> Result<Arc<Subnet>> {
        self.subnets.get(name).cloned().ok_or_else(|| Error::NoSubnet(name.to_owned()))
    }

    /// All subnets, by name.
    pub fn subnets(&self) -> impl Iterator<Item = &Arc<Subnet>> + '_ {
        self.subnets.values()
    }

    /// What the fabric dropped so far, and why.
    #[must_use]
    pub fn drops(&self) -> Vec<Dropped> {
        self.switch.drops()
    }

    pub(crate) const fn services(&self) -> &Services {
        &self.services
    }

    /// All there is, for the OCI API.
    pub(crate) const fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// How often a VNIC or an address came or went.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    fn changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    fn next_vnic_number(&self) -> u32 {
        let mut books = self.books();
        books.vnics += 1;
        books.vnics
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        // Every change is complete in itself, so a panic elsewhere leaves them usable.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Vcn {
    fn drop(&mut self) {
        // Programs first, also those of nodes that somebody still holds: then what they talk to.
        self.spawner.stop();
    }
}
