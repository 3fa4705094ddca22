//! Address objects: private IPs (IPv4) and IPv6s. The API has two families of calls that differ in names only; here the
//! family is an argument.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};
use vcn::{Family, Ocid};

use crate::object::FreeformTags;
use crate::vnic::none_is_empty;

/// An address object: one address of a VNIC, or a block of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IpObject {
    /// The OCID of the address.
    pub id: Ocid,
    /// The address, or the first of the block.
    pub ip_address: IpAddr,
    /// The block's prefix length; absent for a single address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cidr_prefix_length: Option<u8>,
    /// The VNIC that holds it, where one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vnic_id: Option<Ocid>,
    /// The OCID of its subnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet_id: Option<Ocid>,
    /// Whether it is its VNIC's own address, which goes with the VNIC only.
    #[serde(default, deserialize_with = "none_is_empty")]
    pub is_primary: bool,
    /// Its name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// The free-form tags of the address.
    #[serde(default, deserialize_with = "none_is_empty")]
    pub freeform_tags: FreeformTags,
}

/// A request for one address, or one block.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CreateAddress {
    /// The VNIC that is to hold it. Not part of an item of [`CreateAddresses`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vnic_id: Option<Ocid>,
    /// The address; one of the subnet's choice where this is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_address: Option<IpAddr>,
    /// For a block: its prefix length (IPv4 /18–/30; IPv6 /80 and multiples of four).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cidr_prefix_length: Option<u8>,
    /// Which IPv6 block of the subnet it comes from. Compulsory where that has more than one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv6_subnet_cidr: Option<IpNetwork>,
    /// Its name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// The free-form tags that it gets.
    #[serde(skip_serializing_if = "FreeformTags::is_empty")]
    pub freeform_tags: FreeformTags,
}

/// A request for several at once. The service carries it out later: list them to see the outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateAddresses {
    /// The VNIC that is to hold them.
    pub vnic_id: Ocid,
    /// One request each; their own `vnic_id` stays empty.
    pub items: Vec<CreateAddress>,
}

/// The OCID of work that the service carries out later.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WorkRequest(pub String);

/// The API's names for the two families.
pub(crate) struct Names {
    pub(crate) path: &'static str,
    pub(crate) create: &'static str,
    pub(crate) list: &'static str,
    pub(crate) delete: &'static str,
    pub(crate) bulk_create: (&'static str, &'static str, &'static str),
}

const IPV4: Names = Names {
    path: "privateIps",
    create: "CreatePrivateIp",
    list: "ListPrivateIps",
    delete: "DeletePrivateIp",
    bulk_create: ("BulkCreatePrivateIps", "bulkCreatePrivateIps", "bulkCreatePrivateIpItem"),
};

// The singular path and the plural item are the API's.
const IPV6: Names = Names {
    path: "ipv6",
    create: "CreateIpv6",
    list: "ListIpv6s",
    delete: "DeleteIpv6",
    bulk_create: ("BulkCreateIpv6s", "bulkCreateIpv6s", "bulkCreateIpv6sItem"),
};

pub(crate) const fn names(family: Family) -> &'static Names {
    match family {
        Family::Ipv4 => &IPV4,
        Family::Ipv6 => &IPV6,
    }
}
