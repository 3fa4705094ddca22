//! VNICs and addresses come and go.

use std::net::IpAddr;
use std::sync::{Arc, PoisonError};

use ipnetwork::IpNetwork;
use vcn::{Family, IfName, MachineKind, Ocid, PerFamily, VlanTag};

use super::Vcn;
use crate::error::{Error, Result};
use crate::fabric::Port;
use crate::fabric::wire::WireEnd;
use crate::network::Vnic;
use crate::network::identity;
use crate::network::width;
use crate::network::{Secondary, VnicSpec};

impl Vcn {
    /// Attaches a VNIC to a running node: on a virtual machine a link appears, on bare metal the metadata service lists
    /// it and the physical port starts to carry its tag.
    ///
    /// # Errors
    /// When the node or the subnet does not exist, the subnet is full, or the shape allows no more VNICs.
    pub fn attach_vnic(&self, node: &str, spec: &VnicSpec) -> Result<Vnic> {
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let vnic = self.reserve(node, spec)?;
        self.attach(node, vnic)
    }

    /// Detaches a VNIC and deletes it, as OCI does: a virtual machine's link vanishes, a bare-metal port stops carrying
    /// its tag. Its addresses are free again.
    ///
    /// # Errors
    /// When the node has no such VNIC, or it is the primary one.
    pub fn detach_vnic(&self, node: &str, id: &Ocid) -> Result<()> {
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let (vnic, kind) = {
            let mut instances = self.inventory.lock();
            let instance = instances.get_mut(node).ok_or_else(|| Error::NoNode(node.to_owned()))?;
            let place = instance.vnics.iter().position(|vnic| vnic.id == *id);
            let place = place.ok_or_else(|| Error::NoVnic { node: node.to_owned(), vnic: id.to_string() })?;
            if place == 0 {
                return Err(Error::Invalid(format!("the primary VNIC of {node} cannot be detached")));
            }
            let kind = (!instance.on_paper).then_some(instance.kind);
            (instance.vnics.remove(place), kind)
        };
        self.release(&vnic);
        self.changed();
        if let (Some(kind), Some(wiring)) = (kind, &self.wiring) {
            wiring.switch.detach(vnic.port);
            if kind == MachineKind::Virtual {
                wiring.switch.disconnect(vnic.port.wire)?;
            }
        }
        Ok(())
    }

    /// Gives an attached VNIC more secondary addresses (or its block); returns it as it is then.
    ///
    /// # Errors
    /// When the node has no such VNIC, the subnet is full, or the VNIC has a block already.
    pub fn assign_addresses(&self, node: &str, id: &Ocid, secondary: Secondary) -> Result<Vnic> {
        self.change_vnic(node, id, |vcn, vnic| {
            let mut more = vnic.clone();
            (more.address, more.secondary) = (PerFamily::default(), PerFamily::default());
            if let Err(error) = vcn.take_secondary(&mut more, secondary) {
                // All or nothing: the block, if there is one, was there before.
                more.blocks = PerFamily::default();
                vcn.release(&more);
                return Err(error);
            }
            for family in Family::ALL {
                let taken = more.secondary.slot(family).take().unwrap_or_default();
                if !taken.is_empty() {
                    vnic.secondary.slot(family).get_or_insert_default().extend(taken);
                }
            }
            vnic.blocks = more.blocks;
            Ok(())
        })
    }

    /// Takes a secondary address, or its own IPv6 address, from an attached VNIC; returns it as it is then.
    ///
    /// # Errors
    /// When the node has no such VNIC, or the VNIC no such address.
    pub fn unassign_address(&self, node: &str, id: &Ocid, address: IpAddr) -> Result<Vnic> {
        self.change_vnic(node, id, |vcn, vnic| {
            let family = Family::of(address);
            if family == Family::Ipv6 && vnic.address.ipv6 == Some(address) {
                vnic.address.ipv6 = None;
                vcn.give_back(&vnic.subnet.name, address);
                return Ok(());
            }
            let all = vnic.secondary.slot(family).as_mut();
            let place = all.as_ref().and_then(|all| all.iter().position(|own| *own == address));
            let (Some(all), Some(place)) = (all, place) else {
                return Err(Error::Invalid(format!("{} of {node} has no secondary address {address}", vnic.id)));
            };
            all.remove(place);
            vcn.give_back(&vnic.subnet.name, address);
            Ok(())
        })
    }

    /// Gives an attached VNIC one more network out of a block of its subnet: an address, or a block; of the subnet's choice where
    /// no first address is given. Returns it.
    ///
    /// # Errors
    /// When the node has no such VNIC, the addresses are not free, or the VNIC has a block already.
    pub(crate) fn assign(
        &self,
        node: &str,
        id: &Ocid,
        (block, first, prefix): (IpNetwork, Option<IpAddr>, Option<u8>),
    ) -> Result<IpNetwork> {
        let (mut given, family) = (None, Family::of(block.ip()));
        self.change_vnic(node, id, |vcn, vnic| {
            let bits = width(block);
            let prefix = prefix.unwrap_or(bits).min(bits);
            if prefix < bits && vnic.blocks.of(family).is_some() {
                return Err(Error::Invalid(format!("{} has an {family} block already", vnic.id)));
            }
            let size = 1_u128.checked_shl(u32::from(bits - prefix)).unwrap_or(u128::MAX);
            let first = vcn.take_here(&vnic.subnet.name, (block, first), size)?;
            let network = IpNetwork::new(first, prefix).map_err(|error| Error::Invalid(error.to_string()))?;
            if prefix < bits {
                *vnic.blocks.slot(family) = Some(network);
            } else {
                vnic.secondary.slot(family).get_or_insert_default().push(first);
            }
            given = Some(network);
            Ok(())
        })?;
        given.ok_or_else(|| Error::Invalid("nothing was assigned".to_owned()))
    }

    /// Takes a network that [`Vcn::assign`] gave from a VNIC.
    ///
    /// # Errors
    /// When the node has no such VNIC, or the VNIC no such network.
    pub(crate) fn unassign(&self, node: &str, id: &Ocid, network: IpNetwork) -> Result<()> {
        let family = Family::of(network.ip());
        if network.prefix() == width(network) {
            return self.unassign_address(node, id, network.ip()).map(drop);
        }
        self.change_vnic(node, id, |vcn, vnic| {
            let block = vnic.blocks.slot(family);
            if *block != Some(network) {
                return Err(Error::Invalid(format!("{} of {node} has no block {network}", vnic.id)));
            }
            *block = None;
            vcn.give_back(&vnic.subnet.name, network.network());
            Ok(())
        })
        .map(drop)
    }

    /// Gives a VNIC its identity and addresses, within the node's limit. It is connected by [`Vcn::plug`], or its addresses
    /// are freed by [`Vcn::release`].
    pub(crate) fn reserve(&self, node: &str, spec: &VnicSpec) -> Result<Vnic> {
        let limit = self.inventory.lock().get(node).map(|instance| (instance.vnics.len(), instance.max_vnics));
        let (attached, limit) = limit.ok_or_else(|| Error::NoNode(node.to_owned()))?;
        if attached >= limit as usize {
            return Err(Error::VnicLimit { node: node.to_owned(), limit });
        }
        self.new_vnic(spec)
    }

    /// Connects a VNIC that was reserved.
    pub(crate) fn plug(&self, node: &str, vnic: Vnic) -> Result<Vnic> {
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        self.attach(node, vnic)
    }

    /// Changes a VNIC, then tells the fabric and the metadata service.
    fn change_vnic(&self, node: &str, id: &Ocid, change: impl FnOnce(&Self, &mut Vnic) -> Result<()>) -> Result<Vnic> {
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let (found, on_paper) = {
            let instances = self.inventory.lock();
            let instance = instances.get(node).ok_or_else(|| Error::NoNode(node.to_owned()))?;
            (instance.vnics.iter().find(|vnic| vnic.id == *id).cloned(), instance.on_paper)
        };
        let mut vnic = found.ok_or_else(|| Error::NoVnic { node: node.to_owned(), vnic: id.to_string() })?;
        change(self, &mut vnic)?;
        if let (false, Some(wiring)) = (on_paper, &self.wiring) {
            wiring.switch.attach(vnic.port, vnic.fabric_port(node));
        }
        let mut instances = self.inventory.lock();
        let place = instances.get_mut(node).and_then(|instance| instance.vnics.iter_mut().find(|vnic| vnic.id == *id));
        if let Some(place) = place {
            place.clone_from(&vnic);
        }
        drop(instances);
        self.changed();
        Ok(vnic)
    }

    /// Gives a VNIC its identity and addresses; it is not connected yet.
    pub(super) fn new_vnic(&self, spec: &VnicSpec) -> Result<Vnic> {
        let subnet = self.subnet(&spec.subnet)?;
        let number = self.next_vnic_number();
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
        let taken = self.take_own(&mut vnic, spec).and_then(|()| self.take_secondary(&mut vnic, spec.secondary));
        if let Err(error) = taken {
            self.release(&vnic);
            return Err(error);
        }
        Ok(vnic)
    }

    fn take_own(&self, vnic: &mut Vnic, spec: &VnicSpec) -> Result<()> {
        let subnet = Arc::clone(&vnic.subnet);
        for (family, block) in subnet.blocks.iter() {
            let wanted = spec.address.of(family).copied();
            if family == Family::Ipv4 || spec.ipv6 || wanted.is_some() || subnet.blocks.ipv4.is_none() {
                let named = spec.ipv6_block.filter(|_| family == Family::Ipv6);
                let block = wanted.and_then(|own| subnet.block_of(own)).or(named).unwrap_or(*block);
                *vnic.address.slot(family) = Some(self.take_here(&subnet.name, (block, wanted), 1)?);
            }
        }
        Ok(())
    }

    /// The given addresses, or any.
    fn take_here(&self, subnet: &str, (block, first): (IpNetwork, Option<IpAddr>), size: u128) -> Result<IpAddr> {
        let Some(first) = first else { return self.take(subnet, block, size) };
        let mut registry = self.registry();
        let addresses = registry.addresses.get_mut(&block);
        let free = addresses.ok_or_else(|| Error::NoSubnet(subnet.to_owned()))?.take_at(first, size);
        if free { Ok(first) } else { Err(Error::AddressTaken { subnet: subnet.to_owned(), address: first }) }
    }

    fn take_secondary(&self, vnic: &mut Vnic, secondary: Secondary) -> Result<()> {
        for (family, block) in vnic.subnet.blocks.iter() {
            match secondary {
                Secondary::None => {}
                Secondary::Count(count) => {
                    let addresses = vnic.secondary.slot(family).get_or_insert_default();
                    for _ in 0..count {
                        addresses.push(self.take(&vnic.subnet.name, *block, 1)?);
                    }
                }
                Secondary::Block { .. } if vnic.blocks.of(family).is_some() => {
                    return Err(Error::Invalid(format!("{} has an {family} block already", vnic.id)));
                }
                Secondary::Block { bits } => {
                    let size = 1_u128.checked_shl(bits.into()).unwrap_or(u128::MAX);
                    let first = self.take(&vnic.subnet.name, *block, size)?;
                    let prefix = width(*block).saturating_sub(bits);
                    let block = IpNetwork::new(first, prefix).map_err(|error| Error::Invalid(error.to_string()))?;
                    *vnic.blocks.slot(family) = Some(block);
                }
            }
        }
        Ok(())
    }

    fn take(&self, subnet: &str, block: IpNetwork, size: u128) -> Result<IpAddr> {
        let mut registry = self.registry();
        let addresses = registry.addresses.get_mut(&block);
        let first = addresses.ok_or_else(|| Error::NoSubnet(subnet.to_owned()))?.take(size);
        let family = Family::of(block.ip());
        first.ok_or_else(|| Error::SubnetFull { subnet: subnet.to_owned(), size, family })
    }

    fn give_back(&self, subnet: &str, first: IpAddr) {
        let Some(block) = self.subnet(subnet).ok().and_then(|subnet| subnet.block_of(first)) else { return };
        if let Some(addresses) = self.registry().addresses.get_mut(&block) {
            addresses.give_back(first);
        }
    }

    /// Frees all addresses of a VNIC.
    pub(crate) fn release(&self, vnic: &Vnic) {
        let blocks = vnic.blocks.iter().map(|(_, block)| block.network());
        for first in vnic.addresses().chain(blocks) {
            self.give_back(&vnic.subnet.name, first);
        }
    }

    /// Connects a VNIC. The fabric knows it before the metadata service lists it, as in OCI.
    pub(super) fn attach(&self, name: &str, vnic: Vnic) -> Result<Vnic> {
        let vnic = match self.connect(name, vnic.clone()) {
            Ok(connected) => connected,
            Err(error) => {
                self.release(&vnic);
                return Err(error);
            }
        };
        if let (true, Some(wiring)) = (self.nodes.contains_key(name), &self.wiring) {
            wiring.switch.attach(vnic.port, vnic.fabric_port(name));
        }
        if let Some(instance) = self.inventory.lock().get_mut(name) {
            instance.vnics.push(vnic.clone());
        }
        self.changed();
        Ok(vnic)
    }

    /// Finds or makes the wire.
    fn connect(&self, name: &str, mut vnic: Vnic) -> Result<Vnic> {
        let Some((node, ports)) = self.nodes.get(name) else {
            let instances = self.inventory.lock();
            let instance = instances.get(name).ok_or_else(|| Error::NoNode(name.to_owned()))?;
            if instance.kind == MachineKind::BareMetal {
                vnic.vlan_tag = free_tag(&instance.vnics, vnic.nic_index).map_or(0, VlanTag::get);
            }
            return Ok(vnic);
        };
        let attached = node.vnics();
        match node.kind() {
            MachineKind::Virtual => {
                vnic.link = free_link_name(&attached)?;
                let end = WireEnd { netns: node.netns(), name: &vnic.link, mac: vnic.mac, mtu: None };
                vnic.port = Port { wire: self.wiring()?.switch.connect(end)?, tag: None };
            }
            MachineKind::BareMetal => {
                let port = ports
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
        Ok(vnic)
    }
}

/// The tag for the next VNIC of a physical port: none for the first, else the lowest free one.
fn free_tag(attached: &[Vnic], nic_index: u8) -> Option<VlanTag> {
    let taken: Vec<_> = attached.iter().filter(|vnic| vnic.nic_index == nic_index).map(|vnic| vnic.vlan_tag).collect();
    (0..=4094).find(|tag| !taken.contains(tag)).and_then(|tag| VlanTag::new(tag).ok())
}

/// The lowest link name that no VNIC has; a freed one is used again, as PCI slots are.
fn free_link_name(attached: &[Vnic]) -> Result<IfName> {
    let mut number = 0;
    loop {
        let name = identity::link_name(MachineKind::Virtual, number)?;
        if attached.iter().all(|vnic| vnic.link != name) {
            return Ok(name);
        }
        number += 1;
    }
}
