//! VNICs come and go.

use std::sync::{Arc, PoisonError};

use vcn::{IfName, MachineKind, Ocid, PerFamily, VlanTag};

use super::{Vcn, Vnic, VnicSpec, identity};
use crate::error::{Error, Result};
use crate::fabric::Port;
use crate::fabric::wire::WireEnd;

impl Vcn {
    /// Attaches a VNIC to a running node. On a virtual machine a link appears. On bare metal the metadata service lists
    /// it and the physical port starts to carry its tag.
    pub fn attach_vnic(&self, node: &str, spec: &VnicSpec) -> Result<Vnic> {
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let vnic = self.reserve(node, spec)?;
        self.attach(node, vnic)
    }

    /// Detaches a VNIC and deletes it, as OCI does: a virtual machine's link vanishes, a bare-metal port stops carrying
    /// its tag. Its addresses are free again.
    pub fn detach_vnic(&self, node: &str, id: &Ocid) -> Result<()> {
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let (vnic, kind) = {
            let mut instances = self.inventory.lock();
            let instance = instances.get_mut(node).ok_or_else(|| Error::NoNode(node.to_owned()))?;
            let place = instance.vnics.iter().position(|vnic| vnic.id == *id);
            let place = place.ok_or_else(|| Error::NoVnic { node: node.to_owned(), vnic: id.clone() })?;
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
        if let Err(error) = self.take_all(&mut vnic, spec) {
            self.release(&vnic);
            return Err(error);
        }
        Ok(vnic)
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
