//! A VNIC, as the API describes it, and changes to one.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use vcn::{MacAddr, Ocid};

use crate::object::FreeformTags;

/// A VNIC as the service describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Vnic {
    /// The OCID of the VNIC.
    pub id: Ocid,
    /// Its compartment: its subnet's, as a rule.
    pub compartment_id: Ocid,
    /// How far it is.
    pub lifecycle_state: VnicState,
    /// The OCID of its subnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet_id: Option<Ocid>,
    /// Its name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// The Ethernet address of the VNIC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<MacAddr>,
    /// Its primary IPv4 address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private_ip: Option<IpAddr>,
    /// The IPv6 addresses of the VNIC.
    #[serde(default, deserialize_with = "none_is_empty")]
    pub ipv6_addresses: Vec<IpAddr>,
    /// Whether it is its instance's first, which cannot be detached.
    #[serde(default, deserialize_with = "none_is_empty")]
    pub is_primary: bool,
    /// Its network security groups.
    #[serde(default, deserialize_with = "none_is_empty")]
    pub nsg_ids: Vec<Ocid>,
    /// Whether its packets may have addresses that are not its own.
    #[serde(default, deserialize_with = "none_is_empty")]
    pub skip_source_dest_check: bool,
    /// The free-form tags of the VNIC.
    #[serde(default, deserialize_with = "none_is_empty")]
    pub freeform_tags: FreeformTags,
}

/// The state of a VNIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum VnicState {
    /// It is being created.
    Provisioning,
    /// It exists and can be changed.
    Available,
    /// It is being deleted.
    Terminating,
    /// It is deleted for good.
    Terminated,
    /// A state that this version does not know.
    #[serde(other)]
    Unknown,
}

/// Changes to a VNIC. What is absent stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UpdateVnic {
    /// Its name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// Its network security groups, all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nsg_ids: Option<Vec<Ocid>>,
    /// Whether its packets may have addresses that are not its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_source_dest_check: Option<bool>,
    /// Free-form tags, all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub freeform_tags: Option<FreeformTags>,
}

/// The service writes `null` where there is nothing.
pub(crate) fn none_is_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_nothing() {
        let json = r#"{"id":"ocid1.vnic.oc1.iad.a","compartmentId":"ocid1.compartment.oc1..c","lifecycleState":"AVAILABLE",
            "ipv6Addresses":null,"nsgIds":null,"skipSourceDestCheck":null,"freeformTags":null,"macAddress":"02:00:17:0A:00:01"}"#;
        let vnic: Vnic = serde_json::from_str(json).unwrap();
        assert!(vnic.ipv6_addresses.is_empty() && vnic.nsg_ids.is_empty() && !vnic.skip_source_dest_check);
        assert_eq!(vnic.mac_address, "02:00:17:0a:00:01".parse().ok());
    }
}
