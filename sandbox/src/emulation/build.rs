//! Subnets and nodes come into being.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use vcn::MachineKind;

use super::{PhysicalPort, Vcn, Wires};
use crate::Subnet;
use crate::addresses::Addresses;
use crate::error::{Error, For, Result};
use crate::identity;
use crate::inventory::Instance;
use crate::node::{Node, boot_primary, has_ipv6_default};
use crate::spec::{NodeSpec, SubnetSpec};
use crate::vnic::Vnic;
use crate::wire::WireEnd;

/// How long a node may take to learn its IPv6 default route, far beyond what it takes, for a busy machine may stand still; and the
/// pause between two announcements.
const ANNOUNCE_DEADLINE: Duration = Duration::from_secs(60);
const ANNOUNCE_PAUSE: Duration = Duration::from_millis(2);

impl Vcn {
    pub(crate) fn add_subnet(&mut self, spec: SubnetSpec) -> Result<()> {
        let number = u32::try_from(self.subnets.len()).unwrap_or(u32::MAX).saturating_add(1);
        if spec.blocks.is_empty() || self.subnets.contains_key(&spec.name) {
            return Err(Error::Invalid(format!("subnet {:?} has no address block, or exists already", spec.name)));
        }
        let subnet = Subnet {
            name: spec.name.clone(),
            id: identity::ocid("subnet", number)?,
            blocks: spec.blocks,
            second_ipv6: spec.second_ipv6,
            router_mac: identity::router_mac(number),
        };
        let mut books = self.books();
        for block in subnet.all_blocks() {
            books.addresses.insert((spec.name.clone(), block), Addresses::new(block));
        }
        drop(books);
        self.subnets.insert(spec.name, Arc::new(subnet));
        Ok(())
    }

    pub(crate) fn add_node(&mut self, spec: NodeSpec) -> Result<()> {
        if self.inventory.lock().contains_key(&spec.name) {
            return Err(Error::Invalid(format!("two nodes are named {:?}", spec.name)));
        }
        let NodeSpec { name, kind, shape, max_vnics, ports, metadata, vnics, on_paper } = spec;
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
        let instance = Instance {
            name: name.clone(),
            id: id.clone(),
            kind,
            shape,
            max_vnics,
            metadata,
            vnics: Vec::new(),
            fault: None,
            on_paper,
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
        let node =
            Arc::new(Node::create((&name, id.clone(), kind), &own, Arc::clone(&self.spawner), self.inventory.clone())?);
        let mut wires = Wires::default();
        if kind == MachineKind::BareMetal {
            wires = self.plug_physical_ports(&node, ports)?;
        }
        self.nodes.insert(name.clone(), (node, wires));
        self.inventory.lock().insert(name.clone(), instance);
        let primary = self.attach(&name, primary)?;
        let node = self.node(&name)?;
        boot_primary(node.netns(), &primary).on_behalf(|| format!("cannot boot {name}"))?;
        self.announce_router(&node, &primary)?;
        for vnic in vnics {
            self.attach_vnic(&name, &vnic)?;
        }
        Ok(())
    }

    /// Gives a node its IPv6 default route. A link that was raised a moment ago may not listen yet; by itself the node
    /// would ask only seconds later.
    fn announce_router(&self, node: &Node, primary: &Vnic) -> Result<()> {
        if primary.address.ipv6.is_none() {
            return Ok(());
        }
        let deadline = Instant::now() + ANNOUNCE_DEADLINE;
        loop {
            self.switch.advertise(primary.port);
            let taken = has_ipv6_default(node.netns());
            if taken.on_behalf(|| format!("cannot see the routes of {}", node.name()))? {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(Error::Invalid(format!("{} takes no IPv6 default route", node.name())));
            }
            std::thread::sleep(ANNOUNCE_PAUSE);
        }
    }

    fn plug_physical_ports(&self, node: &Node, count: u8) -> Result<Wires> {
        let mut wires = Wires::default();
        for number in 0..count {
            let mac = identity::vnic_mac(self.next_vnic_number());
            let name = identity::link_name(MachineKind::BareMetal, number.into())?;
            let end = WireEnd { netns: node.netns(), name: &name, mac, mtu: None };
            wires.ports.push(PhysicalPort { wire: self.switch.connect(end)?, mac });
        }
        Ok(wires)
    }
}
