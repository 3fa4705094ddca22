//! Subnets and nodes come into being.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use vcn::MachineKind;

use super::addresses::Addresses;
use super::{PhysicalPort, Vcn};
use crate::Subnet;
use crate::error::{Error, ErrorContext, Result};
use crate::fabric::wire::WireEnd;
use crate::network::Instance;
use crate::network::Vnic;
use crate::network::identity;
use crate::network::{NodeSpec, SubnetSpec};
use crate::node::{Node, boot_primary, has_ipv6_default};

/// How long a node may take to learn its IPv6 default route, far beyond what it takes, for a busy machine may stand still; and the
/// time between two announcements.
const ANNOUNCE_DEADLINE: Duration = Duration::from_secs(60);
const ANNOUNCE_PAUSE: Duration = Duration::from_millis(2);

impl Vcn {
    pub(crate) fn add_subnet(&self, spec: SubnetSpec) -> Result<()> {
        let number = u32::try_from(self.subnets().len()).unwrap_or(u32::MAX).saturating_add(1);
        let (blocks, second_ipv6) = spec.parsed()?;
        if blocks.is_empty() || self.subnet(&spec.name).is_ok() {
            return Err(Error::Invalid(format!("subnet {:?} has no address block, or exists already", spec.name)));
        }
        self.put_subnet(Subnet {
            name: spec.name,
            id: identity::ocid("subnet", number)?,
            compartment: identity::compartment()?,
            blocks,
            second_ipv6,
            router_mac: identity::router_mac(number),
            prohibit_public_ip: true,
        });
        Ok(())
    }

    /// Adds a subnet, or changes it for its VNICs as well.
    pub(crate) fn put_subnet(&self, subnet: Subnet) {
        let subnet = Arc::new(subnet);
        let mut registry = self.registry();
        for block in subnet.all_blocks() {
            registry.addresses.entry(block).or_insert_with(|| Addresses::new(block));
        }
        registry.subnets.insert(subnet.name.clone(), Arc::clone(&subnet));
        drop(registry);
        let mut instances = self.inventory.lock();
        let vnics = instances.values_mut().flat_map(|instance| &mut instance.vnics);
        vnics.filter(|vnic| vnic.subnet.id == subnet.id).for_each(|vnic| vnic.subnet = Arc::clone(&subnet));
        drop(instances);
        self.changed();
    }

    pub(crate) fn add_node(&mut self, spec: NodeSpec) -> Result<()> {
        if self.inventory.lock().contains_key(&spec.name) {
            return Err(Error::Invalid(format!("two nodes are named {:?}", spec.name)));
        }
        let NodeSpec { name, kind, shape, max_vnics, ports, metadata, vnics, on_paper } = spec;
        let number = {
            let mut registry = self.registry();
            registry.instances += 1;
            registry.instances
        };
        let id = identity::ocid("instance", number)?;
        let mut vnics = vnics.into_iter();
        let primary = vnics.next().ok_or_else(|| Error::Invalid(format!("node {name:?} has no VNIC")))?;
        let mut primary = self.new_vnic(&primary)?;
        primary.primary = true;
        let instance = Instance {
            name: name.clone(),
            id,
            compartment: identity::compartment()?,
            kind,
            shape,
            max_vnics,
            metadata,
            vnics: Vec::new(),
            fault: None,
            on_paper,
            fields: serde_json::Map::new(),
        };
        if on_paper {
            self.inventory.lock().insert(name.clone(), instance);
            self.attach(&name, primary)?;
            for vnic in vnics {
                self.attach_vnic(&name, &vnic)?;
            }
            return Ok(());
        }
        let own: Vec<IpAddr> = primary.address.iter().map(|(_, address)| *address).collect();
        let spawner = Arc::clone(&self.wiring()?.spawner);
        let node = Arc::new(Node::create(&instance, &own, spawner, self.inventory.clone())?);
        let ports = if kind == MachineKind::BareMetal { self.plug_physical_ports(&node, ports)? } else { Vec::new() };
        self.nodes.insert(name.clone(), (node, ports));
        self.inventory.lock().insert(name.clone(), instance);
        let primary = self.attach(&name, primary)?;
        let node = self.node(&name)?;
        boot_primary(node.netns(), &primary).during(|| format!("boot {name}"))?;
        self.announce_router(&node, &primary)?;
        for vnic in vnics {
            self.attach_vnic(&name, &vnic)?;
        }
        Ok(())
    }

    /// Gives a node its IPv6 default route. A link that was raised a moment ago may not listen yet; by itself the node
    /// would resolve it only seconds later.
    fn announce_router(&self, node: &Node, primary: &Vnic) -> Result<()> {
        if primary.address.ipv6.is_none() {
            return Ok(());
        }
        let deadline = Instant::now() + ANNOUNCE_DEADLINE;
        loop {
            self.wiring()?.switch.advertise(primary.port);
            let taken = has_ipv6_default(node.netns());
            if taken.during(|| format!("see the routes of {}", node.name()))? {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(Error::Invalid(format!("{} takes no IPv6 default route", node.name())));
            }
            std::thread::sleep(ANNOUNCE_PAUSE);
        }
    }

    fn plug_physical_ports(&self, node: &Node, count: u8) -> Result<Vec<PhysicalPort>> {
        let ports = (0..count).map(|number| {
            let mac = identity::vnic_mac(self.next_vnic_number());
            let name = identity::link_name(MachineKind::BareMetal, number.into())?;
            let end = WireEnd { netns: node.netns(), name: &name, mac, mtu: None };
            Ok(PhysicalPort { wire: self.wiring()?.switch.connect(end)?, mac })
        });
        ports.collect()
    }
}
