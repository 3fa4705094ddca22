//! A VNIC on an instance, and the request for one.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};
use vcn::Ocid;

use crate::object::FreeformTags;

/// A VNIC attachment. Belongs to the instance's compartment, the VNIC itself to its subnet's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VnicAttachment {
    /// Its own OCID, not the VNIC's.
    pub id: Ocid,
    /// The OCID of its compartment.
    pub compartment_id: Ocid,
    /// The OCID of its instance.
    pub instance_id: Ocid,
    /// The state of the attachment, not of the VNIC.
    pub lifecycle_state: AttachmentState,
    /// The name given with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// The subnet of the VNIC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet_id: Option<Ocid>,
    /// The VNIC; known only once it is attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vnic_id: Option<Ocid>,
    /// The 802.1Q tag, known only once it is attached. It has a meaning on bare metal only; 0 is untagged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan_tag: Option<u16>,
    /// The physical port of a bare metal instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nic_index: Option<u8>,
}

/// The state of an attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum AttachmentState {
    /// Accepted; the VNIC is being created.
    Attaching,
    /// The VNIC is on the instance.
    Attached,
    /// The VNIC is being detached.
    Detaching,
    /// Gone; the record stays listable for a while.
    Detached,
    /// A state that was introduced after this was written.
    #[serde(other)]
    Unknown,
}

/// A request for a VNIC on an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttachVnic {
    /// The OCID of the instance that gets the VNIC.
    pub instance_id: Ocid,
    /// The VNIC to create.
    pub create_vnic_details: CreateVnic,
    /// A name for the attachment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// The physical port; the first where none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nic_index: Option<u8>,
}

/// A VNIC to create. The route table cannot be chosen here: update the VNIC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CreateVnic {
    /// The OCID of the VNIC's subnet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnet_id: Option<Ocid>,
    /// Its name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// Whether it gets a public address; the subnet decides where this is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assign_public_ip: Option<bool>,
    /// Whether it gets an IPv6 address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assign_ipv6_ip: Option<bool>,
    /// Its network security groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nsg_ids: Vec<Ocid>,
    /// The primary IPv4 address; one of the subnet's choice where this is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_ip: Option<IpAddr>,
    /// Which IPv6 addresses it gets.
    #[serde(rename = "ipv6AddressIpv6SubnetCidrPairDetails", skip_serializing_if = "Vec::is_empty")]
    pub ipv6: Vec<Ipv6Choice>,
    /// Whether packets may come from and go to addresses that are not its own: a host that forwards, for pods too, needs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_source_dest_check: Option<bool>,
    /// The free-form tags that the VNIC gets.
    #[serde(skip_serializing_if = "FreeformTags::is_empty")]
    pub freeform_tags: FreeformTags,
}

/// An IPv6 address for a new VNIC: a given one, or any of a block.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Ipv6Choice {
    /// The requested address; any if `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv6_address: Option<IpAddr>,
    /// The subnet's block it comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv6_subnet_cidr: Option<IpNetwork>,
}

impl AttachmentState {
    /// Whether the VNIC exists, or will.
    pub const fn counts(self) -> bool {
        matches!(self, Self::Attaching | Self::Attached)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_states_of_later_versions_are_tolerated() {
        let json = r#"{"id":"ocid1.vnicattachment.oc1.iad.a","compartmentId":"ocid1.compartment.oc1..c","instanceId":
            "ocid1.instance.oc1.iad.i","lifecycleState":"HIBERNATING","subnetId":null,"somethingNew":{"a":[1]}}"#;
        let read: VnicAttachment = serde_json::from_str(json).unwrap();
        assert_eq!((read.lifecycle_state, read.vnic_id), (AttachmentState::Unknown, None));
    }

    #[test]
    fn a_request_has_only_the_given_fields() {
        let request = AttachVnic {
            instance_id: "ocid1.instance.oc1.iad.i".parse().unwrap(),
            create_vnic_details: CreateVnic {
                subnet_id: "ocid1.subnet.oc1.iad.s".parse().ok(),
                ..CreateVnic::default()
            },
            display_name: None,
            nic_index: None,
        };
        assert_eq!(
            serde_json::to_string(&request).unwrap(),
            r#"{"instanceId":"ocid1.instance.oc1.iad.i","createVnicDetails":{"subnetId":"ocid1.subnet.oc1.iad.s"}}"#
        );
    }
}
