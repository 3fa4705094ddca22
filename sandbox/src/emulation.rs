//! The running VCN: what can be done to it, and in which order that happens.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ipnetwork::IpNetwork;
use vcn::{Family, MachineKind, Ocid, PerFamily, VlanTag};

use crate::Subnet;
use crate::addresses::{Addresses, width};
use crate::builder::Builder;
use crate::command::Spawner;
use crate::error::{Error, For, Result};
use crate::fabric::{Dropped, Port};
use crate::identity;
use crate::inventory::{Instance, Inventory};
use crate::node::{Node, boot_primary};
use crate::services::Services;
use crate::spec::{NodeSpec, Secondary, SubnetSpec, VnicSpec};
use crate::vnic::Vnic;
use crate::wire::{Switch, WireEnd};

/// An emulated VCN. Everything ends with it: nodes, pods, the programs in them.
#[derive(Debug)]
pub struct Vcn {
    // Dropped in this order: programs first, then what they talk to.
    spawner: Arc<Spawner>,
    _services: Services,
    nodes: BTreeMap<String, (Arc<Node>, Wires)>,
    switch: Switch,
    inventory: Inventory,
    subnets: BTreeMap<String, Arc<Subnet>>,
    books: Mutex<Books>,
}

/// A node's wires: of a virtual machine one per VNIC (in [`Vnic`]), of bare metal one per physical port.
#[derive(Debug, Default)]
struct Wires {
    ports: Vec<PhysicalPort>,
}

#[derive(Clone, Debug)]
struct PhysicalPort {
    wire: u32,
    mac: vcn::MacAddr,
}

/// Counters and address books.
#[derive(Debug, Default)]
struct Books {
    instances: u32,
    vnics: u32,
    addresses: BTreeMap<(String, Family), Addresses>,
}

impl Vcn {
    /// Starts a description.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A fabric and services, nothing else.
    pub(crate) fn empty() -> Result<Self> {
        let spawner = Arc::new(Spawner::start()?);
        let inventory = Inventory::default();
        let services = Services::namespace()?;
        let switch = Switch::start(&services)?;
        Ok(Self {
            spawner,
            _services: Services::start(services, inventory.clone())?,
            nodes: BTreeMap::new(),
            switch,
            inventory,
            subnets: BTreeMap::new(),
            books: Mutex::default(),
        })
    }

    pub(crate) fn add_subnet(&mut self, spec: SubnetSpec) -> Result<()> {
        let number = u32::try_from(self.subnets.len()).unwrap_or(u32::MAX).saturating_add(1);
        if spec.blocks.is_empty() || self.subnets.contains_key(&spec.name) {
            return Err(Error::Invalid(format!("subnet {:?} has no address block, or exists already", spec.name)));
        }
        let mut books = self.books();
        for (family, block) in spec.blocks.iter() {
            books.addresses.insert((spec.name.clone(), family), Addresses::new(*block));
        }
        drop(books);
        let subnet = Subnet {
            name: spec.name.clone(),
            id: identity::ocid("subnet", number)?,
            blocks: spec.blocks,
            router_mac: identity::router_mac(number),
        };
        self.subnets.insert(spec.name, Arc::new(subnet));
        Ok(())
    }

    pub(crate) fn add_node(&mut self, spec: NodeSpec) -> Result<()> {
        if self.nodes.contains_key(&spec.name) {
            return Err(Error::Invalid(format!("two nodes are named {:?}", spec.name)));
        }
        let NodeSpec { name, kind, shape, max_vnics, ports, metadata, vnics } = spec;
        let number = {
            let mut books = self.books();
            books.instances += 1;
            books.instances
        };
        let id = identity::ocid("instance", number)?;
        let mut vnics = vnics.into_iter();
        let primary = vnics.next().ok_or_else(|| Error::Invalid(format!("node {name:?} has no VNIC")))?;
        let mut primary = self.new_vnic(&primary)?;
        primary.primary = true;
        let own: Vec<IpAddr> = primary.address.iter().map(|(_, address)| *address).collect();
        let node =
            Arc::new(Node::create((&name, id.clone(), kind), &own, Arc::clone(&self.spawner), self.inventory.clone())?);
        let mut wires = Wires::default();
        if kind == MachineKind::BareMetal {
            wires = self.plug_physical_ports(&node, ports)?;
        }
        self.nodes.insert(name.clone(), (node, wires));
        let instance =
            Instance { name: name.clone(), id, kind, shape, max_vnics, metadata, vnics: Vec::new(), fault: None };
        self.inventory.lock().insert(name.clone(), instance);
        let primary = self.attach(&name, primary)?;
        let node = self.node(&name)?;
        boot_primary(node.netns(), &primary).on_behalf(|| format!("cannot boot {name}"))?;
        self.switch.advertise(primary.port);
        for vnic in vnics {
            self.attach_vnic(&name, &vnic)?;
        }
        Ok(())
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

    /// Attaches a VNIC to a running node: on a virtual machine a link appears, on bare metal the metadata service lists
    /// it and the physical port starts to carry its tag.
    ///
    /// # Errors
    /// When the node or the subnet does not exist, the subnet is full, or the shape allows no more VNICs.
    pub fn attach_vnic(&self, node: &str, spec: &VnicSpec) -> Result<Vnic> {
        let limit = self.inventory.lock().get(node).map(|instance| (instance.vnics.len(), instance.max_vnics));
        let (attached, limit) = limit.ok_or_else(|| Error::NoNode(node.to_owned()))?;
        if attached >= limit as usize {
            return Err(Error::VnicLimit { node: node.to_owned(), limit });
        }
        let vnic = self.new_vnic(spec)?;
        self.attach(node, vnic)
    }

    /// Detaches a VNIC and deletes it, as OCI does: a virtual machine's link vanishes, a bare-metal port stops carrying
    /// its tag. Its addresses are free again.
    ///
    /// # Errors
    /// When the node has no such VNIC, or it is the primary one.
    pub fn detach_vnic(&self, node: &str, id: &Ocid) -> Result<()> {
        let vnic = {
            let mut instances = self.inventory.lock();
            let instance = instances.get_mut(node).ok_or_else(|| Error::NoNode(node.to_owned()))?;
            let place = instance.vnics.iter().position(|vnic| vnic.id == *id);
            let place = place.ok_or_else(|| Error::NoVnic { node: node.to_owned(), vnic: id.to_string() })?;
            if place == 0 {
                return Err(Error::Invalid(format!("the primary VNIC of {node} cannot be detached")));
            }
            instance.vnics.remove(place)
        };
        self.switch.detach(vnic.port);
        if self.node(node)?.kind() == MachineKind::Virtual {
            self.switch.disconnect(vnic.port.wire)?;
        }
        let mut books = self.books();
        let blocks = vnic.blocks.iter().map(|(_, block)| block.network());
        for address in vnic.addresses().chain(blocks) {
            if let Some(book) = books.addresses.get_mut(&(vnic.subnet.name.clone(), Family::of(address))) {
                book.give_back(address);
            }
        }
        Ok(())
    }

    /// Gives a VNIC its identity and addresses; it is not connected yet.
    fn new_vnic(&self, spec: &VnicSpec) -> Result<Vnic> {
        let subnet = self.subnet(&spec.subnet)?;
        let mut books = self.books();
        books.vnics += 1;
        let number = books.vnics;
        let mut vnic = Vnic {
            id: identity::ocid("vnic", number)?,
            display_name: spec.display_name.clone().unwrap_or_else(|| format!("vnic-{number}")),
            mac: identity::vnic_mac(number),
            subnet: Arc::clone(&subnet),
            address: PerFamily::default(),
            secondary: PerFamily::default(),
            blocks: PerFamily::default(),
            primary: false,
            nic_index: spec.nic_index,
            vlan_tag: identity::meaningless_tag(number),
            link: identity::link_name(MachineKind::Virtual, 0)?,
            port: Port { wire: 0, tag: None },
        };
        for (family, block) in subnet.blocks.iter() {
            let key = (subnet.name.clone(), family);
            let book = books.addresses.get_mut(&key).ok_or_else(|| Error::NoSubnet(spec.subnet.clone()))?;
            let full = |size| Error::SubnetFull { subnet: spec.subnet.clone(), size, family };
            *vnic.address.slot(family) = Some(book.take(1).ok_or_else(|| full(1))?);
            match spec.secondary {
                Secondary::None => {}
                Secondary::Count(count) => {
                    let addresses: Option<Vec<_>> = (0..count).map(|_| book.take(1)).collect();
                    *vnic.secondary.slot(family) = Some(addresses.ok_or_else(|| full(count.into()))?);
                }
                Secondary::Block { bits } => {
                    let size = 1_u128.checked_shl(bits.into()).ok_or_else(|| full(u128::MAX))?;
                    let first = book.take(size).ok_or_else(|| full(size))?;
                    let prefix = width(*block).saturating_sub(bits);
                    let block = IpNetwork::new(first, prefix).map_err(|error| Error::Invalid(error.to_string()))?;
                    *vnic.blocks.slot(family) = Some(block);
                }
            }
        }
        Ok(vnic)
    }

    /// Connects a VNIC. The fabric knows it before the metadata service lists it, as in OCI.
    fn attach(&self, name: &str, mut vnic: Vnic) -> Result<Vnic> {
        let (node, wires) = self.nodes.get(name).ok_or_else(|| Error::NoNode(name.to_owned()))?;
        let attached = node.vnics();
        match node.kind() {
            MachineKind::Virtual => {
                vnic.link = self.free_link_name(&attached)?;
                let end = WireEnd { netns: node.netns(), name: &vnic.link, mac: vnic.mac, mtu: None };
                vnic.port = Port { wire: self.switch.connect(end)?, tag: None };
            }
            MachineKind::BareMetal => {
                let port = wires
                    .ports
                    .get(usize::from(vnic.nic_index))
                    .ok_or_else(|| Error::Invalid(format!("{name} has no physical port {}", vnic.nic_index)))?;
                vnic.link = identity::link_name(MachineKind::BareMetal, vnic.nic_index.into())?;
                let tag = free_tag(&attached, vnic.nic_index);
                if tag.is_none() {
                    // The first VNIC of a port is the port: untagged, with the port's own address.
                    vnic.mac = port.mac;
                }
                vnic.vlan_tag = tag.map_or(0, VlanTag::get);
                vnic.port = Port { wire: port.wire, tag };
            }
        }
        self.switch.attach(vnic.port, vnic.fabric_port(name));
        if let Some(instance) = self.inventory.lock().get_mut(name) {
            instance.vnics.push(vnic.clone());
        }
        Ok(vnic)
    }

    fn free_link_name(&self, attached: &[Vnic]) -> Result<vcn::IfName> {
        let mut number = 0;
        loop {
            let name = identity::link_name(MachineKind::Virtual, number)?;
            if attached.iter().all(|vnic| vnic.link != name) {
                return Ok(name);
            }
            number += 1;
        }
    }

    fn plug_physical_ports(&self, node: &Node, count: u8) -> Result<Wires> {
        let mut wires = Wires::default();
        for number in 0..count {
            let mac = {
                let mut books = self.books();
                books.vnics += 1;
                identity::vnic_mac(books.vnics)
            };
            let name = identity::link_name(MachineKind::BareMetal, number.into())?;
            let end = WireEnd { netns: node.netns(), name: &name, mac, mtu: None };
            wires.ports.push(PhysicalPort { wire: self.switch.connect(end)?, mac });
        }
        Ok(wires)
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        // Every change is complete in itself, so a panic elsewhere leaves them usable.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tag for the next VNIC of a physical port: none for the first, else the lowest free one.
fn free_tag(attached: &[Vnic], nic_index: u8) -> Option<VlanTag> {
    let taken: Vec<_> = attached.iter().filter(|vnic| vnic.nic_index == nic_index).map(|vnic| vnic.vlan_tag).collect();
    (0..=4094).find(|tag| !taken.contains(tag)).and_then(|tag| VlanTag::new(tag).ok())
}
