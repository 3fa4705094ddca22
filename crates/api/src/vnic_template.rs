//! What is asked of a VNIC, wherever it is: the part that a VnicAttachment and a VnicProfile's template share.
#![expect(unreachable_pub, reason = "KubeSchema writes a public copy of each struct into a function")]

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vcn::Ocid;

use crate::schema;
use crate::vnic_name::VnicName;

/// A VNIC as it is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.purpose == 'Attach' || !has(self.allowedNamespaces) || size(self.allowedNamespaces) == 0")
        .message("allowedNamespaces are for purpose Attach only")
        .field_path(".allowedNamespaces")
)]
pub struct VnicTemplate {
    /// What pods, the agent and people call this VNIC: a DNS label, unique on the instance. Cannot be changed.
    #[schemars(schema_with = "schema::dns_label")]
    pub name: VnicName,
    /// Whom it is for: Pods (its addresses go to pods), Host (the host's own use) or Attach (kept for pods that ask for
    /// it by name). Cannot be changed. Nodes do not go by it yet: each VNIC is a link of the host's, and pods get addresses of
    /// those alone that the NativePodNetwork lists.
    pub purpose: Purpose,
    /// The OCID of its subnet. Cannot be changed.
    #[schemars(schema_with = "schema::subnet")]
    pub subnet_id: Ocid,
    /// The OCIDs of its network security groups, at most 5. None if absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::security_groups")]
    pub nsg_ids: Vec<Ocid>,
    /// The physical port of a bare-metal machine, 0 or 1; 0 if absent. Virtual machines have only 0. Cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::integer::<0, 1>")]
    pub nic_index: Option<u8>,
    /// How many private IPv4 addresses it has beside its own, 0 to 255; 0 if absent. The service's limit is lower as a
    /// rule (31 or 63) and counts.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(schema_with = "schema::integer::<0, 255>")]
    pub ipv4_count: u8,
    /// How many IPv6 addresses it has beside its own, 0 to 255; 0 if absent. The service's limit is lower as a rule (32)
    /// and counts.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(schema_with = "schema::integer::<0, 255>")]
    pub ipv6_count: u8,
    /// The namespaces whose pods may use it, at most 32; none if absent. With purpose Attach only.
    /// Nodes do not apply it yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::namespaces")]
    pub allowed_namespaces: Vec<String>,
    /// What the host reaches by it beside its subnet, at most 16 routes; none if absent. Nodes do not apply
    /// them yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub routes: Vec<Route>,
    /// The largest packet in bytes, 1280 to 9000; 9000 if absent. Nodes do not apply it yet: all have 9000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::integer::<1280, 9000>")]
    pub mtu: Option<u16>,
    /// Whether its packets may have addresses that are not its own, for what forwards; false if absent.
    #[serde(default, skip_serializing_if = "is_false")]
    pub skip_source_dest_check: bool,
    /// Whether its own IPv4 address gets a public one when it is attached; false if absent. Cannot be changed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub assign_public_ip: bool,
    /// Its name in the OCI console, 1 to 255 characters; that of the VnicAttachment if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::display_name")]
    pub display_name: Option<String>,
    /// Its free-form tags, at most 7 beside three of the controller's; none if absent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::freeform_tags")]
    pub freeform_tags: BTreeMap<String, String>,
    /// What becomes of the VNIC when the VnicAttachment is deleted: Detach (which deletes it) or Orphan (it stays as it
    /// is, without the controller's tags but for one that says so); Detach if absent.
    #[serde(default, skip_serializing_if = "OnDelete::is_detach")]
    pub on_delete: OnDelete,
}

/// Whom a VNIC serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Purpose {
    /// Its addresses go to pods.
    Pods,
    /// The host's own use.
    Host,
    /// Kept for pods that ask for it by name.
    Attach,
}

/// What becomes of the VNIC when it is no longer asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum OnDelete {
    /// It is detached, which deletes it.
    #[default]
    Detach,
    /// It stays.
    Orphan,
}

/// A route of the host by a VNIC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(
    validation = Rule::new("!has(self.via) || !isIP(self.via) || !isCIDR(self.destination) || ip(self.via).family() == cidr(self.destination).ip().family()")
        .message("via and destination must be of one family")
        .field_path(".via")
)]
pub struct Route {
    /// A CIDR block without host bits; never a default route, whole or in pieces, and never link-local.
    #[schemars(schema_with = "schema::destination")]
    pub destination: IpNetwork,
    /// The next hop, an address in the subnet; the subnet's virtual router if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::address")]
    pub via: Option<IpAddr>,
}

impl OnDelete {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it by reference")]
    const fn is_detach(&self) -> bool {
        matches!(self, Self::Detach)
    }
}

impl From<Purpose> for vcn::Purpose {
    fn from(purpose: Purpose) -> Self {
        match purpose {
            Purpose::Pods => Self::Pods,
            Purpose::Host => Self::Host,
            Purpose::Attach => Self::Attach,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it by reference")]
const fn is_zero(count: &u8) -> bool {
    *count == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it by reference")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}
