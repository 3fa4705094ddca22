//! A subnet of the emulated VCN: its address blocks and its virtual router.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::{IpNetwork, Ipv4Network, Ipv6Network};
use vcn::{Family, MacAddr, Ocid, PerFamily};

/// A subnet. As in OCI, the virtual router has the first address of the IPv4 block, and a link-local IPv6 address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subnet {
    /// The name that the builder and the command line use.
    pub name: String,
    /// The OCID of the subnet.
    pub id: Ocid,
    /// Its compartment, which its VNICs belong to.
    pub compartment: Ocid,
    /// The address block of each family the subnet has.
    pub blocks: PerFamily<IpNetwork>,
    /// Another IPv6 block, where it has two.
    pub second_ipv6: Option<IpNetwork>,
    /// The virtual router's Ethernet address.
    pub router_mac: MacAddr,
    /// Whether its VNICs may have no public address.
    pub prohibit_public_ip: bool,
}

impl Subnet {
    /// The virtual router's IPv4 address, where the subnet has IPv4.
    pub fn router_v4(&self) -> Option<Ipv4Addr> {
        match self.blocks.ipv4 {
            Some(IpNetwork::V4(block)) => block.nth(1),
            _ => None,
        }
    }

    /// The virtual router's link-local IPv6 address (EUI-64 of its MAC), where the subnet has IPv6.
    pub fn router_v6(&self) -> Option<Ipv6Addr> {
        self.blocks.ipv6.is_some().then(|| self.router_mac.link_local())
    }

    /// The virtual router's address of one family.
    pub fn router(&self, family: Family) -> Option<IpAddr> {
        match family {
            Family::Ipv4 => self.router_v4().map(IpAddr::V4),
            Family::Ipv6 => self.router_v6().map(IpAddr::V6),
        }
    }

    /// Whether an address lies in one of the subnet's blocks.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.block_of(address).is_some()
    }

    /// All blocks of the subnet, of both families.
    pub fn all_blocks(&self) -> impl Iterator<Item = IpNetwork> {
        self.blocks.iter().map(|(_, block)| *block).chain(self.second_ipv6)
    }

    /// The block that has an address.
    pub fn block_of(&self, address: IpAddr) -> Option<IpNetwork> {
        self.all_blocks().find(|block| block.contains(address))
    }

    /// The IPv4 block, typed.
    pub fn ipv4(&self) -> Option<Ipv4Network> {
        match self.blocks.ipv4 {
            Some(IpNetwork::V4(block)) => Some(block),
            _ => None,
        }
    }

    /// The IPv6 block, typed.
    pub fn ipv6(&self) -> Option<Ipv6Network> {
        match self.blocks.ipv6 {
            Some(IpNetwork::V6(block)) => Some(block),
            _ => None,
        }
    }
}
