//! What decisions about the host's network start from.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;

use api::NativePodNetwork;
use vcn::{LinkKindName, Ocid, TableId, Vnic};

use crate::decide::devices::Devices;
use crate::decide::host_routes::NeededNetwork;
use crate::decide::requests::Requests;

/// What is known, from outside and from the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostFacts<'a> {
    /// The instance's VNICs, the primary one first.
    pub vnics: &'a [Vnic],
    pub npn: Option<&'a NativePodNetwork>,
    pub links: &'a [netlink::Link],
    /// The kind of those that are VNICs'.
    pub nics: &'a LinkKindName,
    /// Which of them were the VNICs' before.
    pub devices: &'a Devices,
    /// Whether the kernel speaks IPv6.
    pub ipv6: bool,
    /// Addresses that our rules mark as the host's; assigned ones first.
    pub own: &'a [HostAddress],
    /// Addresses that pods hold.
    pub held: &'a HashSet<IpAddr>,
    pub requests: &'a Requests,
    /// VNICs that a VnicAttachment may describe, as long as that is not known.
    pub unexplained: &'a BTreeSet<Ocid>,
    /// What no VNIC's route may cover.
    pub needed: &'a [NeededNetwork],
}

/// An address that one of our rules marks as the host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostAddress {
    /// The table of its VNIC.
    pub table: TableId,
    pub address: IpAddr,
    /// Whether the host has it. It never got one that a pod held when the rule was made, and loses others with a link that goes
    /// down.
    pub is_assigned: bool,
}
