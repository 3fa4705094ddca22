//! Options of network links in a NodePolicy.
#![expect(unreachable_pub, reason = "KubeSchema writes a public copy of each struct into a function")]

use std::collections::BTreeMap;

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// Options of the links that a selector matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.mtu) || has(self.txQueueLength) || has(self.ring) || has(self.channels) || has(self.offloads) || has(self.sysctls)")
        .message("needs mtu, txQueueLength, ring, channels, offloads or sysctls"),
    validation = Rule::new("!has(self.sysctls) || self.sysctls.all(key, key.matches('^ipv[46][.](neigh[.])?[a-z0-9_]+$'))")
        .message("a setting of a link begins with ipv4. or ipv6., such as ipv6.accept_ra")
        .field_path(".sysctls")
)]
pub struct LinkSettings {
    /// Which links: one field. A link of a pod, a bridge or a tunnel is never matched.
    pub select: LinkSelector,
    /// The MTU in bytes, 576 to 9216, and 1280 at least where the link has IPv6; unchanged if absent. Never of a link that a
    /// VnicAttachment configures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::integer::<576, 9216>")]
    pub mtu: Option<u16>,
    /// The length of the transmit queue in packets, 1 to 100000; unchanged if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::integer::<1, 100000>")]
    pub tx_queue_length: Option<u32>,
    /// Entries of the rings between driver and device; unchanged if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ring: Option<LinkRings>,
    /// Queues of the device; unchanged if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channels: Option<LinkChannels>,
    /// What the device does instead of the kernel; each unchanged if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offloads: Option<LinkOffloads>,
    /// Kernel settings of the link, such as ipv6.accept_ra, at most 16; none if absent. Those that the agent sets are refused on
    /// the links that it configures.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::sysctls::<16>")]
    pub sysctls: BTreeMap<String, String>,
}

/// Which links: exactly one field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(
    validation = Rule::new("[has(self.primary) && self.primary, has(self.rdma) && self.rdma, has(self.driver), has(self.name), has(self.mac)].filter(x, x).size() == 1")
        .message("needs exactly one of primary: true, rdma: true, driver, name and mac")
)]
pub struct LinkSelector {
    /// If true, the link of the primary VNIC; false if absent.
    #[serde(default, skip_serializing_if = "is_false")]
    pub primary: bool,
    /// If true, links of devices that carry RDMA; false if absent.
    #[serde(default, skip_serializing_if = "is_false")]
    pub rdma: bool,
    /// Links of this driver, such as mlx5_core; any if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::driver")]
    pub driver: Option<String>,
    /// Links of this name, which may end in *; any if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::link_name")]
    pub name: Option<String>,
    /// The link with this permanent MAC address; any if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::mac")]
    pub mac: Option<String>,
}

/// Entries of a link's rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct LinkRings {
    /// Receive, 1 to 65536; unchanged if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::integer::<1, 65536>")]
    pub rx: Option<u32>,
    /// Transmit, 1 to 65536; unchanged if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::integer::<1, 65536>")]
    pub tx: Option<u32>,
}

/// Queues of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct LinkChannels {
    /// Receive, 1 to 1024; unchanged if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::integer::<1, 1024>")]
    pub rx: Option<u32>,
    /// Transmit, 1 to 1024; unchanged if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::integer::<1, 1024>")]
    pub tx: Option<u32>,
    /// Both, 1 to 1024; unchanged if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::integer::<1, 1024>")]
    pub combined: Option<u32>,
}

/// What a link's device does instead of the kernel, by ethtool's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LinkOffloads {
    /// Receive checksums; unchanged if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx_checksum: Option<bool>,
    /// Transmit checksums; unchanged if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx_checksum: Option<bool>,
    /// TCP segmentation; unchanged if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tso: Option<bool>,
    /// Generic segmentation; unchanged if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gso: Option<bool>,
    /// Generic receive offload; unchanged if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gro: Option<bool>,
    /// Large receive offload; unchanged if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lro: Option<bool>,
    /// Receive hashing; unchanged if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx_hash: Option<bool>,
    /// Filters of received flows; unchanged if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ntuple: Option<bool>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it by reference")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}
