//! The numbers and names that identify our objects on a node (promise P2).
//! Changing one is an incompatible change: a new version would no longer recognise what the old one left.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;

use crate::{Family, Mark, Priority, TableId};

/// The protocol number of all our routes and rules. Free in iproute2's `rt_protos` (99, often borrowed, is openr).
pub const PROTOCOL: u8 = 157;

/// Our first route table; a VNIC's table is this plus its slot. OCI's scripts use 10–255 (`ort*`).
pub const TABLE_BASE: u32 = 1000;

/// The table that leads to pods, one host route each. Main stays as its owners made it, and one rule for all pods, instead
/// of one for each, keeps the list short that the kernel goes through for every packet.
pub const PODS_TABLE: TableId = TableId(TABLE_BASE - 1);

/// In a pod with extra interfaces: the routes that its other interfaces had before. An extra interface's own table has the
/// number of its VNIC's.
pub const POD_OWN_TABLE: TableId = TableId(TABLE_BASE - 2);

/// A VNIC's link that a pod had gets this and its Ethernet address as its name where another link has taken its own.
pub const RETURNED_LINK_PREFIX: &str = "vn";

/// Host ends of pod links are named by this prefix and a hash; Calico's and Cilium's generic-veth modes match on it,
/// and so does our nft table.
pub const HOST_LINK_PREFIX: &str = "vcn";

/// Aliases of our links start with this; the rest says whose the link is.
pub const LINK_ALIAS_PREFIX: &str = "vcn-native:";

/// Our nft table (family inet).
pub const NFT_TABLE: &str = "vcn-native";

/// Our bits of packet and connection marks: none of kube-proxy's (0x4000, 0x8000), portmap's (0x2000), AWS's
/// (0x80), Calico's (0xffff0000), Cilium's kind of a mark (0x0f00) and Istio's (1337). Cilium's cluster number, where
/// clusters are meshed, is the low byte's other user.
pub const MARK_MASK: u32 = MARK_PRESENT | 0x0046;

/// Set in all our marks, so that small numbers, which operators like to choose, are not among them.
const MARK_PRESENT: u32 = 0x1000;

/// The mark of what came in by the primary VNIC.
pub const PRIMARY_MARK: Mark = Mark { value: MARK_PRESENT, mask: MARK_MASK };

/// The mark of what came in by the secondary VNIC that has this table. There are seven such marks, for the first seven
/// tables; VNICs beyond have none.
pub const fn vnic_mark(table: TableId) -> Option<Mark> {
    // 0 is the primary VNIC's.
    let number = match table.0.checked_sub(TABLE_BASE) {
        Some(slot @ 0..7) => slot + 1,
        _ => return None,
    };
    // Its three bits, to where the mask has room.
    let value = MARK_PRESENT | (number & 1) << 1 | (number & 2) << 1 | (number & 4) << 4;
    Some(Mark { value, mask: MARK_MASK })
}

/// The CNI network name. It keys allocations and the runtime's caches, so it never changes.
pub const NETWORK_NAME: &str = "vcn-native";

/// The network name in the keys of `vnic-attach`'s allocations, whatever the network is called that it is chained to: GC of
/// that network does not know them.
pub const VNIC_ATTACH_NETWORK: &str = "vnic-attach";

/// The pod annotation that lists the extra interfaces a pod wants.
pub const INTERFACES_ANNOTATION: &str = "oke.oraclecloud.com/interfaces";

/// Each binary of our plugins contains one of these texts, in every release (`ABOUT`): the installer recognizes it by that.
pub const PLUGIN_MARKS: [&str; 2] = [
    "gives pods VCN addresses of the node's secondary VNICs",
    "gives pods extra interfaces on VNICs that they request",
];

/// Our CNI configuration. It sorts before OKE's `10-oci.conflist` and Cilium's `05-cilium` comes before it.
pub const CONFLIST_FILE: &str = "05-vcn-native.conflist";

/// Our copy of another pod network's configuration, with `vnic-attach` behind its plugins. It sorts before every file that a
/// network is known to write; Multus's `00-multus.conf` comes before it.
pub const COPIED_CONFLIST_FILE: &str = "00-vnic-attach.conflist";

/// The NativePodNetwork as the agent last saw it at the API server, in the directory that outlives a boot.
pub const NPN_COPY_FILE: &str = "nativepodnetwork-seen.json";

/// The secondary VNICs as the agent last knew them, in the directory that outlives a boot.
pub const VNICS_COPY_FILE: &str = "vnics-seen.json";

/// The VnicAttachments of the node as the agent last saw them, in the directory that outlives a boot.
pub const ATTACHMENTS_COPY_FILE: &str = "vnicattachments-seen.json";

/// The conditions reported by Kubernetes Events and not yet as cleared, in the directory that outlives a boot.
pub const REPORTED_CONDITIONS_FILE: &str = "reported-conditions.json";

/// The controller's rules of health signals, in the directory that outlives a boot.
pub const CONTROLLER_RULES_FILE: &str = "controller-rules.json";

/// The settings of the node from NodePolicies, in the directory that outlives a boot.
pub const NODE_POLICY_FILE: &str = "node-policy.json";

/// Which of these settings the node has had while the controller reached it, in the directory that outlives a boot.
pub const NODE_POLICY_PROOFS_FILE: &str = "node-policy-proofs.json";

/// An unfinished change of a link by a NodePolicy, in the directory that outlives a boot.
pub const LINK_JOURNAL_FILE: &str = "link-journal.json";

/// The folder of captures, in the directory that outlives a boot; the agent empties it when it starts.
pub const CAPTURES_FOLDER: &str = "captures";

/// Node-local state of this boot (tmpfs): pools, allocations.
pub const STATE_DIR: &str = "/run/vcn-native";

/// The metadata service, VCN resolver (53) and time server (123), on the primary VNIC only.
pub const METADATA_ADDRESS: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);

/// The same services by IPv6, on the primary VNIC only as well.
pub const METADATA_ADDRESS_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x00c1, 0, 0, 0, 0, 0xa9fe, 0xa9fe);

/// A pod's IPv4 gateway: no link has this address; a permanent neighbour answers for it.
pub const POD_GATEWAY_V4: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);

/// A pod's IPv6 gateway, likewise.
pub const POD_GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// The priorities of our policy rules, in the order the kernel reads them.
#[derive(Clone, Copy, Debug)]
pub struct RulePriorities;

impl RulePriorities {
    /// Everything → [`PODS_TABLE`]: what is for a pod of this node goes to it, whatever comes below.
    pub const TO_PODS: Priority = Priority(512);
    /// To the metadata addresses → main: they answer on the primary VNIC only.
    pub const METADATA: Priority = Priority(1000);
    /// One of our marks → main for the primary VNIC, else the VNIC's table: replies leave by the VNIC the question came by.
    pub const MARK: Priority = Priority(1024);
    /// From a pod → the table of its VNIC.
    pub const FROM_POD: Priority = Priority(1536);
    /// From a VNIC's own address → its table.
    pub const FROM_VNIC: Priority = Priority(1537);

    /// In a pod, from an address of its other interfaces → [`POD_OWN_TABLE`]. Those of `vnic-attach` have [`Self::FROM_POD`].
    pub const IN_POD_OWN: Priority = Priority(1537);
    /// The first of [`Self::to_network`].
    const TO_NETWORK: u32 = 1538;

    /// The last of all.
    pub const LAST: Priority = Priority(Self::TO_NETWORK + 2 * 128 + 1);

    /// To a network that the host reaches through a VNIC → main, where it has a route to a smaller network; then → the VNIC's table.
    /// Each prefix length has its own two, the longest first, so that the most specific route wins, as in one table.
    pub fn to_network(destination: &IpNetwork) -> [Priority; 2] {
        let shorter = Family::of(destination.ip()).host_prefix().saturating_sub(destination.prefix());
        let first = Self::TO_NETWORK + 2 * u32::from(shorter);
        [Priority(first), Priority(first + 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_vnic_has_another_mark_until_there_are_none_left() {
        let marks: Vec<Mark> = (0..100).map_while(|slot| vnic_mark(TableId(TABLE_BASE + slot))).collect();
        assert_eq!(marks.len(), 7);
        for (index, mark) in marks.iter().enumerate() {
            assert_eq!((mark.mask, mark.value & !mark.mask), (MARK_MASK, 0), "{mark}");
            assert!(*mark != PRIMARY_MARK && !marks[..index].contains(mark), "{mark}");
        }
        assert_eq!(vnic_mark(TableId::MAIN), None);
        assert_eq!(vnic_mark(PODS_TABLE), None);
    }

    #[test]
    fn own_mark_bits_differ_from_well_known_foreign_bits() {
        for (whose, bits) in [
            ("kube-proxy", 0xc000),
            ("portmap", 0x2000),
            ("AWS", 0x80),
            ("Calico", 0xffff_0000),
            ("Cilium", 0x0f00),
            ("Istio", 1337),
        ] {
            assert_eq!(MARK_MASK & bits, 0, "{whose}");
        }
    }
}
