//! `VnicAttachment`: a request for one VNIC on one instance. Users and VnicProfiles write the spec, the controller writes the
//! status, except for `status.node`, which the node's agent writes.
#![expect(unreachable_pub, reason = "KubeSchema writes a public copy of each struct into a function")]

use std::net::IpAddr;

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};
use vcn::Ocid;

use crate::condition::Condition;
use crate::schema;
use crate::vnic_template::VnicTemplate;

// Spec and status are atomic (`x-kubernetes-map-type`): the list of field owners would be a third of the object.
/// The requested VNIC and its instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "oke.oraclecloud.com",
    version = "v1alpha1",
    kind = "VnicAttachment",
    plural = "vnicattachments",
    shortname = "vnica",
    category = "oke",
    status = "VnicAttachmentStatus",
    derive = "PartialEq",
    doc = "One VNIC on one instance.",
    selectable = ".spec.instanceId",
    validation = Rule::new(crate::attachment_size::attachment()).message(crate::attachment_size::message().as_str()).field_path(".spec").optional_old_self(true)
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
#[x_kube(
    validation = Rule::new("self.instanceId == oldSelf.instanceId").message("cannot be changed: make another VnicAttachment").field_path(".instanceId"),
    validation = Rule::new("self.subnetId == oldSelf.subnetId").message("cannot be changed: make another VnicAttachment").field_path(".subnetId"),
    validation = Rule::new("self.name == oldSelf.name").message("cannot be changed: make another VnicAttachment").field_path(".name"),
    validation = Rule::new("self.purpose == oldSelf.purpose").message("cannot be changed: make another VnicAttachment").field_path(".purpose"),
    validation = Rule::new("(has(self.mode) ? self.mode : 'Shared') == (has(oldSelf.mode) ? oldSelf.mode : 'Shared')").message("cannot be changed: make another VnicAttachment").field_path(".mode"),
    validation = Rule::new("(has(self.nicIndex) ? self.nicIndex : 0) == (has(oldSelf.nicIndex) ? oldSelf.nicIndex : 0)").message("cannot be changed: make another VnicAttachment").field_path(".nicIndex"),
    validation = Rule::new("(has(self.privateIp) ? self.privateIp : '') == (has(oldSelf.privateIp) ? oldSelf.privateIp : '')").message("cannot be changed: make another VnicAttachment").field_path(".privateIp"),
    validation = Rule::new("(has(self.assignPublicIp) && self.assignPublicIp) == (has(oldSelf.assignPublicIp) && oldSelf.assignPublicIp)").message("cannot be changed: make another VnicAttachment").field_path(".assignPublicIp"),
    validation = Rule::new("!has(self.requestedAddresses) || self.requestedAddresses.filter(a, isIP(a) && ip(a).family() == 4).size() <= (has(self.ipv4Count) ? self.ipv4Count : 0)").message("has more IPv4 addresses than ipv4Count says").field_path(".requestedAddresses"),
    validation = Rule::new("!has(self.requestedAddresses) || self.requestedAddresses.filter(a, isIP(a) && ip(a).family() == 6).size() <= (has(self.ipv6Count) ? self.ipv6Count : 0)").message("has more IPv6 addresses than ipv6Count says").field_path(".requestedAddresses")
)]
pub struct VnicAttachmentSpec {
    /// The OCID of the instance: its identity, unlike the name and address of its Node. Cannot be changed.
    #[schemars(schema_with = "schema::instance")]
    pub instance_id: Ocid,
    /// Addresses that ipv4Count and ipv6Count must include, at most 8; any if absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::addresses")]
    pub requested_addresses: Vec<IpAddr>,
    /// The VNIC itself; its fields are on the same level as `instanceId`.
    #[serde(flatten)]
    pub vnic: VnicTemplate,
}

/// What the controller observed and did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct VnicAttachmentStatus {
    /// The generation of the spec that the status describes.
    #[serde(default, deserialize_with = "crate::lenient", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::generation")]
    pub observed_generation: Option<i64>,
    /// Attached, Configured and Ready.
    #[serde(default, deserialize_with = "crate::lenient_list", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The Node whose providerID names the instance; absent if its name has more than 64 characters. Only the agent of that
    /// node may write `status.node`.
    #[serde(default, deserialize_with = "crate::lenient", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::text::<64>")]
    pub node_name: Option<String>,
    /// The OCID of the VNIC, once it is attached. The metadata service and the OCI API list the MAC, VLAN tag and addresses of the
    /// VNIC under this OCID, as does `oke-node-agent pools` in the agent's pod of the node.
    #[serde(default, deserialize_with = "crate::lenient", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::vnic")]
    pub vnic_id: Option<Ocid>,
    /// The VNIC's own address in each family of its subnet, IPv4 first: used by the host, never by a pod.
    #[serde(default, deserialize_with = "crate::lenient_list", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::held_addresses::<2, 39>")]
    pub own_addresses: Vec<IpAddr>,
    /// The additional IPv4 addresses of a VNIC that pods share (purpose Attach, mode Shared). The node learns them only here: the
    /// metadata service lists additional addresses of IPv6 only.
    #[serde(default, deserialize_with = "crate::lenient_list", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::held_addresses::<32, 15>")]
    pub pod_addresses: Vec<IpAddr>,
    /// The report of the node's agent; absent until the first report, and after the VNIC was replaced.
    #[serde(default, deserialize_with = "crate::lenient", skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeReport>,
}

/// What a node's agent reports of a VNIC. The agent writes it when something of it changes, and nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeReport {
    /// Whether the VNIC is set up on the node.
    pub configured: bool,
    /// The agent's reason why the VNIC is not set up, as in `oke-node-agent status`; absent if it is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(schema_with = "schema::word::<0, 32>")]
    pub reason: String,
    /// The number of pods that requested the VNIC by name and have it or one of its addresses; 0 if absent.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(schema_with = "schema::count")]
    pub in_use: u32,
    /// The generation of the spec that the node uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::generation")]
    pub generation: Option<i64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it by reference")]
const fn is_zero(count: &u32) -> bool {
    *count == 0
}
