//! Addresses and blocks of VNICs come and go.

use std::net::IpAddr;
use std::sync::PoisonError;

use ipnetwork::IpNetwork;
use vcn::{Family, Ocid};

use super::{Subnet, Vcn, Vnic, VnicSpec, width};
use crate::error::{Error, Result};

/// A network to take out of a block of a subnet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestedBlock {
    pub(crate) block: IpNetwork,
    /// Its first address; the lowest free one where this is absent.
    pub(crate) first: Option<IpAddr>,
    /// Its prefix length: a single address has the longest.
    pub(crate) prefix: u8,
}

impl RequestedBlock {
    const fn address(block: IpNetwork, first: Option<IpAddr>) -> Self {
        Self { block, first, prefix: width(block) }
    }
}

impl Vcn {
    /// Gives an attached VNIC one more address or block.
    pub(crate) fn assign(&self, node: &str, id: &Ocid, requested: RequestedBlock) -> Result<IpNetwork> {
        self.change_vnic(node, id, |vnic| self.give(vnic, requested))
    }

    /// Takes an address or a block from an attached VNIC: a secondary one, or its own IPv6 address.
    pub(crate) fn unassign(&self, node: &str, id: &Ocid, network: IpNetwork) -> Result<()> {
        let (family, address) = (Family::of(network.ip()), network.ip());
        self.change_vnic(node, id, |vnic| {
            let found = if network.prefix() < width(network) {
                vnic.blocks.slot(family).take_if(|block| *block == network).is_some()
            } else if family == Family::Ipv6 && vnic.address.ipv6 == Some(address) {
                vnic.address.ipv6.take().is_some()
            } else {
                let all = vnic.secondary.slot(family).get_or_insert_default();
                let place = all.iter().position(|own| *own == address);
                place.map(|place| all.remove(place)).is_some()
            };
            if !found {
                return Err(Error::Invalid(format!("{} of {node} has no secondary {network}", vnic.id)));
            }
            self.give_back(&vnic.subnet, address);
            Ok(())
        })
    }

    /// Frees all addresses of a VNIC.
    pub(crate) fn release(&self, vnic: &Vnic) {
        let blocks = vnic.blocks.iter().map(|(_, block)| block.network());
        vnic.addresses().chain(blocks).for_each(|first| self.give_back(&vnic.subnet, first));
    }

    /// Takes all addresses of a new VNIC.
    pub(super) fn take_all(&self, vnic: &mut Vnic, spec: &VnicSpec) -> Result<()> {
        let subnet = std::sync::Arc::clone(&vnic.subnet);
        for (family, block) in subnet.blocks.iter() {
            let own = spec.address.of(family).copied();
            if family == Family::Ipv4 || spec.ipv6 || own.is_some() || subnet.blocks.ipv4.is_none() {
                let named = spec.ipv6_block.filter(|_| family == Family::Ipv6);
                let block = own.and_then(|own| subnet.block_of(own)).or(named).unwrap_or(*block);
                *vnic.address.slot(family) = Some(self.take(&subnet, RequestedBlock::address(block, own))?);
            }
        }
        for (_, block) in subnet.blocks.iter() {
            let requested = RequestedBlock { block: *block, first: None, prefix: width(*block) };
            (0..spec.secondary).try_for_each(|_| self.give(vnic, requested).map(drop))?;
        }
        Ok(())
    }

    fn give(&self, vnic: &mut Vnic, requested: RequestedBlock) -> Result<IpNetwork> {
        let family = Family::of(requested.block.ip());
        let is_single = requested.prefix == width(requested.block);
        if !is_single && vnic.blocks.of(family).is_some() {
            return Err(Error::Invalid(format!("{} has an {family} block already", vnic.id)));
        }
        let first = self.take(&vnic.subnet, requested)?;
        let network = IpNetwork::new(first, requested.prefix).map_err(|error| Error::Invalid(error.to_string()))?;
        if is_single {
            vnic.secondary.slot(family).get_or_insert_default().push(first);
        } else {
            *vnic.blocks.slot(family) = Some(network);
        }
        Ok(network)
    }

    fn take(&self, subnet: &Subnet, RequestedBlock { block, first, prefix }: RequestedBlock) -> Result<IpAddr> {
        let size = 1_u128.checked_shl(u32::from(width(block).saturating_sub(prefix))).unwrap_or(u128::MAX);
        let mut registry = self.registry();
        let addresses = registry
            .addresses
            .get_mut(&block)
            .ok_or_else(|| Error::Invalid(format!("{} has no {block}", subnet.name)))?;
        let (subnet, family) = (subnet.name.clone(), Family::of(block.ip()));
        match first {
            Some(first) if addresses.take_at(first, size) => Ok(first),
            Some(address) => Err(Error::AddressTaken { subnet, address }),
            None => addresses.take(size).ok_or(Error::SubnetFull { subnet, size, family }),
        }
    }

    fn give_back(&self, subnet: &Subnet, first: IpAddr) {
        let Some(block) = subnet.block_of(first) else { return };
        if let Some(addresses) = self.registry().addresses.get_mut(&block) {
            addresses.give_back(first);
        }
    }

    /// Changes a VNIC, then updates the fabric and the metadata service.
    fn change_vnic<T>(&self, node: &str, id: &Ocid, change: impl FnOnce(&mut Vnic) -> Result<T>) -> Result<T> {
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let (found, on_paper) = {
            let instances = self.inventory.lock();
            let instance = instances.get(node).ok_or_else(|| Error::NoNode(node.to_owned()))?;
            (instance.vnics.iter().find(|vnic| vnic.id == *id).cloned(), instance.on_paper)
        };
        let mut vnic = found.ok_or_else(|| Error::NoVnic { node: node.to_owned(), vnic: id.clone() })?;
        let done = change(&mut vnic)?;
        if let (false, Some(wiring)) = (on_paper, &self.wiring) {
            wiring.switch.attach(vnic.port, vnic.fabric_port(node));
        }
        let mut instances = self.inventory.lock();
        let place = instances.get_mut(node).and_then(|instance| instance.vnics.iter_mut().find(|vnic| vnic.id == *id));
        if let Some(place) = place {
            *place = vnic;
        }
        drop(instances);
        self.changed();
        Ok(done)
    }
}
