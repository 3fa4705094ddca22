//! A subnet.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};
use vcn::Ocid;

use crate::vnic::none_is_empty;

/// A subnet of a VCN.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Subnet {
    /// The OCID of the subnet.
    pub id: Ocid,
    /// The OCID of its compartment.
    pub compartment_id: Ocid,
    /// Its name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// Its first IPv4 block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cidr_block: Option<IpNetwork>,
    /// Its first IPv6 block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6_cidr_block: Option<IpNetwork>,
    /// All its IPv6 blocks.
    #[serde(default, deserialize_with = "none_is_empty")]
    pub ipv6_cidr_blocks: Vec<IpNetwork>,
    /// Its router's IPv4 address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtual_router_ip: Option<IpAddr>,
    /// Its router's IPv6 address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6_virtual_router_ip: Option<IpAddr>,
    /// Whether public addresses are forbidden.
    #[serde(default, deserialize_with = "none_is_empty")]
    pub prohibit_public_ip_on_vnic: bool,
}

impl Subnet {
    /// All its IPv6 blocks, as they are listed; the first one, where there is no list.
    pub fn ipv6_blocks(&self) -> &[IpNetwork] {
        if self.ipv6_cidr_blocks.is_empty() { self.ipv6_cidr_block.as_slice() } else { &self.ipv6_cidr_blocks }
    }
}
