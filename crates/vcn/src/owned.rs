//! What is ours on a node (promise P2): the numbers and names by which our objects are told from everybody else's.
//! Changing one is an incompatible change: a new version would no longer recognise what the old one left.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::{Priority, TableId};

/// The protocol number on every route and rule of ours. Free in iproute2's `rt_protos` (99, often borrowed, is openr).
pub const PROTOCOL: u8 = 157;

/// The first route table of ours; a VNIC's table is this plus its slot. OCI's scripts use 10–255 (`ort*`).
pub const TABLE_BASE: u32 = 1000;

/// The table that leads to pods, one host route each. Main stays as its owners made it, and one rule for all pods, instead
/// of one for each, keeps the list short that the kernel goes through for every packet.
pub const PODS_TABLE: TableId = TableId(TABLE_BASE - 1);

/// Host ends of pod links are named by this prefix and a hash; Calico's and Cilium's generic-veth modes match on it,
/// and so does our nft table.
pub const HOST_LINK_PREFIX: &str = "vcn";

/// Aliases of our links start with this; the rest says whose the link is.
pub const LINK_ALIAS_PREFIX: &str = "vcn-native:";

/// Our nft table (family inet).
pub const NFT_TABLE: &str = "vcn-native";

/// The CNI network name. It keys allocations and the runtime's caches, so it never changes.
pub const NETWORK_NAME: &str = "vcn-native";

/// Our CNI configuration. It sorts before OKE's `10-oci.conflist` and Cilium's `05-cilium` comes before it.
pub const CONFLIST_FILE: &str = "05-vcn-native.conflist";

/// Node-local state of this boot (tmpfs): pools, allocations.
pub const STATE_DIR: &str = "/run/vcn-native";

/// The metadata service, VCN resolver (53) and time server (123), on the primary VNIC only.
pub const METADATA_ADDRESS: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);

/// A pod's IPv4 gateway: nobody holds this address, a permanent neighbour answers for it.
pub const POD_GATEWAY_V4: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);

/// A pod's IPv6 gateway, likewise.
pub const POD_GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// The priorities of our policy rules, in the order the kernel asks them.
#[derive(Clone, Copy, Debug)]
pub struct RulePriorities;

impl RulePriorities {
    /// Everything → [`PODS_TABLE`]: what is for a pod of this node goes to it, whatever comes below.
    pub const TO_PODS: Priority = Priority(512);
    /// To the metadata address → main: it answers on the primary VNIC only.
    pub const METADATA: Priority = Priority(1000);
    /// Our mark → main: replies leave by the VNIC they came in on.
    pub const MARK: Priority = Priority(1024);
    /// From a pod → the table of its VNIC.
    pub const FROM_POD: Priority = Priority(1536);
    /// From a VNIC's own address → its table.
    pub const FROM_VNIC: Priority = Priority(1537);
}
