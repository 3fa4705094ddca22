//! Where a frame enters or leaves the fabric, and the VNIC that is there.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipnetwork::IpNetwork;
use vcn::{MacAddr, VlanTag};

use crate::Subnet;

/// A place on the fabric: a wire (by its link index in the fabric's namespace) and, on a bare-metal trunk, a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port {
    /// The index of the fabric's end of the wire.
    pub wire: u32,
    /// The 802.1Q tag; frames themselves never carry it inside the fabric.
    pub tag: Option<VlanTag>,
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tag {
            Some(tag) => write!(f, "wire {} tag {tag}", self.wire),
            None => write!(f, "wire {}", self.wire),
        }
    }
}

/// A VNIC as the fabric knows it: what it may send, and what is delivered to it.
#[derive(Clone, Debug)]
pub struct VnicPort {
    /// For people, for example `node-a/vnic-1`.
    pub label: String,
    /// The only source MAC it may use.
    pub mac: MacAddr,
    /// Whether it is its instance's primary VNIC: only those reach the services on 169.254.169.254.
    pub primary: bool,
    /// The subnet of the VNIC.
    pub subnet: Arc<Subnet>,
    /// Its single addresses: its own and its secondary ones.
    pub addresses: BTreeSet<IpAddr>,
    /// Its address blocks (a "CIDR private IP").
    pub blocks: Vec<IpNetwork>,
}

impl VnicPort {
    /// Whether the VNIC holds an address.
    pub fn owns(&self, address: IpAddr) -> bool {
        self.addresses.contains(&address) || self.blocks.iter().any(|block| block.contains(address))
    }
}
