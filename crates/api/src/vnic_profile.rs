//! `VnicProfile`: VNICs for each node of a pool, or that a selector matches, or that requests them by annotation. The controller creates
//! a VnicAttachment from each template for each node.
#![expect(unreachable_pub, reason = "KubeSchema writes a public copy of each struct into a function")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};
use vcn::Ocid;

use crate::condition::Condition;
use crate::schema;
use crate::vnic_template::VnicTemplate;

/// Which nodes get which VNICs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "oke.oraclecloud.com",
    version = "v1alpha1",
    kind = "VnicProfile",
    plural = "vnicprofiles",
    shortname = "vnicp",
    category = "oke",
    status = "VnicProfileStatus",
    derive = "PartialEq",
    doc = "VNICs for the nodes of node pools, or for those that a selector matches.",
    validation = Rule::new("size(self.metadata.name) <= 63 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')").message("a VnicProfile's name is a DNS label: it becomes a label's value"),
    validation = Rule::new(crate::attachment_size::profile()).message(crate::attachment_size::message().as_str()).field_path(".spec.attachments").optional_old_self(true),
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
#[x_kube(
    validation = Rule::new("!has(self.nodePools) || size(self.nodePools) == 0 || !has(self.nodeSelector) && (!has(self.allNodes) || !self.allNodes)")
        .message("nodePools select the nodes alone: leave nodeSelector and allNodes out")
        .field_path(".nodePools"),
    validation = Rule::new("has(self.nodePools) && size(self.nodePools) > 0 || has(self.nodeSelector) && (has(self.allNodes) && self.allNodes) != ((has(self.nodeSelector.matchLabels) && size(self.nodeSelector.matchLabels) > 0) || (has(self.nodeSelector.matchExpressions) && size(self.nodeSelector.matchExpressions) > 0))")
        .message("a profile needs nodePools, or a nodeSelector with a label or an expression, or nodeSelector: {} with allNodes: true")
        .field_path(".nodeSelector")
)]
pub struct VnicProfileSpec {
    /// Selects the nodes of these OKE node pools by the pools' OCIDs, at most 16; none if absent. The Node's annotation
    /// oci.oraclecloud.com/node-pool-id must name one, and the instance's metadata (oke-pool-id) must confirm it. Without
    /// nodeSelector and allNodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::node_pools")]
    pub node_pools: Vec<Ocid>,
    // Absent with node pools: a version before them cannot read such a profile, and leaves its VNICs alone. An empty selector
    // would select every Node there.
    /// Selects Nodes by their labels: at least one label or expression, and {} with allNodes only; if absent, nodePools must
    /// select.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub node_selector: Option<LabelSelector>,
    /// If true, the profile selects all Nodes, and nodeSelector must be {}; false if absent. Without it an empty selector is
    /// refused, because it is probably a mistake.
    #[serde(default, skip_serializing_if = "is_false")]
    pub all_nodes: bool,
    /// If true, only those selected Nodes get the VNICs whose annotation oke.oraclecloud.com/vnics names this profile;
    /// false if absent.
    #[serde(default, skip_serializing_if = "is_false")]
    pub allow_node_annotation: bool,
    /// If true, the controller creates, changes and removes nothing for the profile; false if absent.
    #[serde(default, skip_serializing_if = "is_false")]
    pub paused: bool,
    /// The VNICs of each Node, 1 to 8, by name.
    #[schemars(length(min = 1, max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub attachments: Vec<VnicTemplate>,
}

/// Progress in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct VnicProfileStatus {
    /// The generation of the spec that the status describes.
    #[serde(default, deserialize_with = "crate::lenient", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::generation")]
    pub observed_generation: Option<i64>,
    /// Ready.
    #[serde(default, deserialize_with = "crate::lenient_list", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Counts of Nodes.
    #[serde(default, deserialize_with = "crate::lenient", skip_serializing_if = "Option::is_none")]
    pub summary: Option<ProfileSummary>,
    /// Up to 10 failed Nodes, sorted by name.
    #[serde(default, deserialize_with = "crate::lenient_list", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::texts::<10, 253>")]
    pub failing_nodes: Vec<String>,
}

/// Counts of a profile's Nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct ProfileSummary {
    /// Nodes that should have the VNICs.
    #[schemars(schema_with = "schema::count")]
    pub matched: u32,
    /// Of those, nodes with all VNICs attached.
    #[schemars(schema_with = "schema::count")]
    pub attached: u32,
    /// Of those, nodes with all VNICs ready.
    #[schemars(schema_with = "schema::count")]
    pub ready: u32,
    /// Of those, nodes that cannot get their VNICs (a limit, a permission, a wrong field), and Nodes that get none.
    #[schemars(schema_with = "schema::count")]
    pub failed: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it by reference")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}
