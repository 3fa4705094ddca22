//! A VNIC of the emulated VCN.

use std::net::IpAddr;
use std::sync::Arc;

use ipnetwork::IpNetwork;
use vcn::{IfName, MacAddr, Ocid, PerFamily};

use crate::Subnet;
use crate::fabric::{Port, VnicPort};

/// A VNIC that is attached to a node.
#[derive(Clone, Debug)]
pub struct Vnic {
    /// The OCID of the VNIC.
    pub id: Ocid,
    /// Its name for people.
    pub display_name: String,
    /// The Ethernet address of the VNIC.
    pub mac: MacAddr,
    /// The subnet of the VNIC.
    pub subnet: Arc<Subnet>,
    /// Its own address of each family: the host's.
    pub address: PerFamily<IpAddr>,
    /// Its secondary addresses, in the order they were given.
    pub secondary: PerFamily<Vec<IpAddr>>,
    /// Its address block of each family.
    pub blocks: PerFamily<IpNetwork>,
    /// Whether it is the node's first.
    pub primary: bool,
    /// The physical port (bare metal).
    pub nic_index: u8,
    /// The tag that the metadata service reports: on bare metal the 802.1Q tag, 0 for none; on a virtual machine a
    /// number that means nothing.
    pub vlan_tag: u16,
    /// The node's link that carries it: on a virtual machine its own, on bare metal the physical port's.
    pub link: IfName,
    /// Where the fabric finds it.
    pub(crate) port: Port,
}

impl Vnic {
    /// All single addresses: its own and the secondary ones.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let own = self.address.iter().map(|(_, address)| *address);
        own.chain(self.secondary.iter().flat_map(|(_, addresses)| addresses.iter().copied()))
    }

    pub(crate) fn fabric_port(&self, node: &str) -> VnicPort {
        VnicPort {
            label: format!("{node}/{}", self.display_name),
            mac: self.mac,
            primary: self.primary,
            subnet: Arc::clone(&self.subnet),
            addresses: self.addresses().collect(),
            blocks: self.blocks.iter().map(|(_, block)| *block).collect(),
        }
    }
}
