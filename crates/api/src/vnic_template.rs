//! The request for a VNIC without its instance: the part that a VnicAttachment and a VnicProfile's template share.
#![expect(unreachable_pub, reason = "KubeSchema writes a public copy of each struct into a function")]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use ipnetwork::IpNetwork;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vcn::Ocid;

use crate::schema;
use crate::vnic_name::VnicName;

/// A requested VNIC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.purpose == 'Attach' || !has(self.allowedNamespaces) || size(self.allowedNamespaces) == 0")
        .message("allowedNamespaces are for purpose Attach only")
        .field_path(".allowedNamespaces"),
    validation = Rule::new("self.purpose == 'Attach' || !has(self.mode)").message("mode is for purpose Attach only").field_path(".mode"),
    validation = Rule::new("self.purpose == 'Host' || !has(self.subnetRoute) || !self.subnetRoute").message("subnetRoute is for purpose Host only").field_path(".subnetRoute"),
    validation = Rule::new("!has(self.privateIp) || self.purpose == 'Host' || self.purpose == 'Attach' && has(self.mode) && self.mode == 'Exclusive'")
        .message("privateIp is for purpose Host, and for purpose Attach with mode Exclusive")
        .field_path(".privateIp"),
    validation = Rule::new(crate::attachment_size::shared().as_str())
        .message("a VNIC that pods share has at most 32 IPv4 addresses")
        .field_path(".ipv4Count")
)]
pub struct VnicTemplate {
    /// The VNIC's name for pods, agent and people: a DNS label, unique on the instance. Cannot be changed.
    #[schemars(schema_with = "schema::dns_label")]
    pub name: VnicName,
    /// The use of the VNIC. Pods: pods get its addresses, if the NativePodNetwork lists it. Host: only the host uses it. Attach: the
    /// VNIC is kept for pods that request it by name. Cannot be changed.
    pub purpose: Purpose,
    /// How pods use a VNIC of purpose Attach; Shared if absent. Shared: several pods, each with one of its additional addresses.
    /// Exclusive: one pod at a time has the VNIC itself. Cannot be changed.
    #[serde(default, skip_serializing_if = "AttachMode::is_shared")]
    pub mode: AttachMode,
    /// The OCID of the VNIC's subnet. Cannot be changed.
    #[schemars(schema_with = "schema::subnet")]
    pub subnet_id: Ocid,
    /// The OCIDs of the VNIC's network security groups, at most 5; none if absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::security_groups")]
    pub nsg_ids: Vec<Ocid>,
    /// The physical port of a bare-metal machine, 0 or 1; 0 if absent. Virtual machines have only 0. Cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::integer::<0, 1>")]
    pub nic_index: Option<u8>,
    /// The VNIC's own private IPv4 address, in the subnet; any free address if absent. Only with purpose Host, or Attach with mode
    /// Exclusive, and in a VnicProfile only if the profile selects one node. Used when the VNIC is created. Cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::ipv4_address")]
    pub private_ip: Option<Ipv4Addr>,
    /// The number of private IPv4 addresses in addition to the VNIC's own, 0 to 255, or 32 if pods share the VNIC; 0 if absent. OCI's
    /// limit is usually lower (31 or 63). A VNIC of mode Exclusive does not use these addresses.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(schema_with = "schema::integer::<0, 255>")]
    pub ipv4_count: u8,
    /// The number of IPv6 addresses in addition to the VNIC's own, 0 to 255; 0 if absent. OCI's limit is usually lower (32).
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(schema_with = "schema::integer::<0, 255>")]
    pub ipv6_count: u8,
    /// The namespaces whose pods may use the VNIC, at most 32; none if absent. Only with purpose Attach.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::namespaces")]
    pub allowed_namespaces: Vec<String>,
    /// Whether the host reaches the VNIC's subnet through the VNIC; false if absent. Without it, the host uses the VNIC only for
    /// packets from its address and for `routes`. Only with purpose Host.
    #[serde(default, skip_serializing_if = "is_false")]
    pub subnet_route: bool,
    /// Networks behind the VNIC, at most 16 routes; none if absent. With purpose Host the host uses them, with Attach the pods that
    /// have the VNIC. With Pods they have no effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub routes: Vec<Route>,
    /// The VNIC's MTU in bytes, 1280 to 9000; 9000 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::integer::<1280, 9000>")]
    pub mtu: Option<u16>,
    /// Whether the VNIC may forward packets of other addresses; false if absent.
    #[serde(default, skip_serializing_if = "is_false")]
    pub skip_source_dest_check: bool,
    /// Whether the VNIC's own IPv4 address gets a public address at the attach; false if absent. Cannot be changed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub assign_public_ip: bool,
    /// The VNIC's name in the OCI console, 1 to 255 characters; the VnicAttachment's name if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::display_name")]
    pub display_name: Option<String>,
    /// The VNIC's free-form tags, at most 7 in addition to three of the controller; none if absent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::freeform_tags")]
    pub freeform_tags: BTreeMap<String, String>,
    /// What happens to the VNIC when the VnicAttachment is deleted; Detach if absent. Detach deletes the VNIC. Orphan leaves the VNIC,
    /// with one tag that marks it as released.
    #[serde(default, skip_serializing_if = "OnDelete::is_detach")]
    pub on_delete: OnDelete,
}

/// The use of a VNIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Purpose {
    /// Pods get its addresses.
    Pods,
    /// Only the host uses it.
    Host,
    /// Kept for pods that request it by name.
    Attach,
}

/// How pods use a VNIC of [`Purpose::Attach`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum AttachMode {
    /// Several pods, each with one address of the VNIC.
    #[default]
    Shared,
    /// One pod at a time has the VNIC itself.
    Exclusive,
}

/// What happens to the VNIC when it is no longer requested.
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

impl AttachMode {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it by reference")]
    const fn is_shared(&self) -> bool {
        matches!(self, Self::Shared)
    }
}

impl VnicTemplate {
    /// Whether the host uses the VNIC only for packets from the VNIC's address.
    pub fn lacks_routes(&self) -> bool {
        self.purpose == Purpose::Host && !self.subnet_route && self.routes.is_empty()
    }

    /// Whether several pods use the VNIC, each with one of its additional addresses.
    pub fn is_shared_by_pods(&self) -> bool {
        (self.purpose, self.mode) == (Purpose::Attach, AttachMode::Shared)
    }
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

impl From<AttachMode> for vcn::AttachMode {
    fn from(mode: AttachMode) -> Self {
        match mode {
            AttachMode::Shared => Self::Shared,
            AttachMode::Exclusive => Self::Exclusive,
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
