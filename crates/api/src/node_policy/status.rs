//! The status of a NodePolicy: where the rollout is, and the last settings that worked. The controller bounds it: with a spec
//! at its largest, an object takes at most 9 KB, or 24 KB with files.
#![expect(unreachable_pub, reason = "KubeSchema writes a public copy of each struct into a function")]

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::condition::{Condition, cut};
use crate::node_policy::size::{METADATA, object_max, stored};
use crate::node_policy::{NodePolicySpec, NodeSettings, PolicyMode};
use crate::schema;

/// The most failing nodes in a status.
pub const FAILING_MAX: usize = 10;
/// The most canaries, as [`super::Canary::nodes`].
pub const CANARIES_MAX: usize = 10;

/// Progress, and what a rollback needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct NodePolicyStatus {
    /// The generation of the spec that the status describes.
    #[serde(default, deserialize_with = "crate::lenient", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::generation")]
    pub observed_generation: Option<i64>,
    /// Progressing and Applied.
    #[serde(default, deserialize_with = "crate::lenient_list", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Who created the policy: the user that its annotation oke.oraclecloud.com/created-by names, or the program.
    #[serde(default, deserialize_with = "crate::lenient", skip_serializing_if = "String::is_empty")]
    #[schemars(schema_with = "schema::text::<64>")]
    pub created_by: String,
    /// The revision of the spec: a hash of mode, priority and settings.
    #[serde(default, deserialize_with = "crate::lenient", skip_serializing_if = "String::is_empty")]
    #[schemars(schema_with = "schema::word::<0, 16>")]
    pub target: String,
    /// A revision that failed. It is not tried again until mode, priority or settings change.
    #[serde(default, deserialize_with = "crate::lenient", skip_serializing_if = "String::is_empty")]
    #[schemars(schema_with = "schema::word::<0, 16>")]
    pub rejected: String,
    /// The canaries of the target, at most 10: written before the first of them gets it.
    #[serde(default, deserialize_with = "crate::lenient_list", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::texts::<10, 253>")]
    pub canaries: Vec<String>,
    /// The last revision that all nodes had without a failure: for a rollback, and for nodes that join during a rollout.
    #[serde(default, deserialize_with = "crate::lenient", skip_serializing_if = "Option::is_none")]
    pub stable: Option<StableRevision>,
    /// Nodes in numbers.
    #[serde(default, deserialize_with = "crate::lenient", skip_serializing_if = "Option::is_none")]
    pub nodes: Option<PolicyCounts>,
    /// Up to 10 nodes with the target that failed, or else do not have a setting.
    #[serde(default, deserialize_with = "crate::lenient_list", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10), extend("x-kubernetes-list-type" = "atomic"))]
    pub failing: Vec<FailingNode>,
}

/// A revision that works.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct StableRevision {
    /// Its name.
    #[schemars(schema_with = "schema::word::<1, 16>")]
    pub revision: String,
    /// Its mode.
    #[serde(default)]
    pub mode: PolicyMode,
    /// Its priority.
    #[schemars(schema_with = "schema::integer::<0, 1000>")]
    pub priority: u16,
    /// Its settings, as in a spec.
    pub settings: NodeSettings,
}

/// Nodes of a policy in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyCounts {
    /// Nodes that the policy selects.
    #[schemars(schema_with = "schema::count")]
    pub matched: u32,
    /// Of those, nodes that have the target.
    #[schemars(schema_with = "schema::count")]
    pub target: u32,
    /// Of those, nodes that have the stable revision.
    #[schemars(schema_with = "schema::count")]
    pub stable: u32,
    /// Nodes that failed with the target.
    #[schemars(schema_with = "schema::count")]
    pub failed: u32,
    /// Nodes where a value differs: reported, reverted by another program, or not possible.
    #[schemars(schema_with = "schema::count")]
    pub drifted: u32,
    /// Items that differ on these nodes, in all.
    #[schemars(schema_with = "schema::count")]
    pub drifted_items: u32,
    /// Nodes where an older policy of the same priority sets another value.
    #[schemars(schema_with = "schema::count")]
    pub conflicted: u32,
    /// Nodes whose agent cannot apply policies, because its version is older.
    #[schemars(schema_with = "schema::count")]
    pub unsupported: u32,
    /// Nodes that are NotReady, or whose agent does not answer.
    #[schemars(schema_with = "schema::count")]
    pub unavailable: u32,
}

/// A node that does not have a setting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct FailingNode {
    /// The Node's name.
    #[schemars(schema_with = "schema::text::<253>")]
    pub node: String,
    /// The setting, or what is wrong with the node.
    #[schemars(schema_with = "schema::text::<64>")]
    pub item: String,
    /// A stable reason: docs/resources.md.
    #[schemars(schema_with = "schema::word::<1, 64>")]
    pub reason: String,
}

impl NodePolicyStatus {
    /// Within [`super::OBJECT_MAX`] with this spec, or [`super::OBJECT_WITH_FILES_MAX`]. What goes first is what people miss least: nodes that lack a setting, items, messages.
    /// The first `failures` of the failing nodes are kept longest, because a later leader counts them.
    #[must_use]
    pub fn bounded(mut self, spec: &NodePolicySpec, failures: usize) -> Self {
        self.failing.truncate(FAILING_MAX);
        let most = object_max(spec, self.stable.as_ref().map(|stable| &stable.settings));
        let room = most.saturating_sub(METADATA + stored(spec));
        let is_too_long = |status: &Self| stored(status) > room;
        while is_too_long(&self) && self.failing.len() > failures {
            self.failing.pop();
        }
        for index in (0..self.failing.len()).rev().filter(|_| is_too_long(&self)).collect::<Vec<_>>() {
            if let Some(failing) = self.failing.get_mut(index) {
                failing.item.clear();
            }
        }
        if is_too_long(&self) {
            self.conditions.iter_mut().for_each(|condition| condition.message.clear());
        }
        while is_too_long(&self) && self.failing.pop().is_some() {}
        self
    }
}

impl FailingNode {
    /// Within the bounds of a status.
    pub fn new(node: &str, item: &str, reason: &str) -> Self {
        Self { node: cut(node, NODE_MAX), item: cut(item, ITEM_MAX), reason: reason.to_owned() }
    }
}

/// The most bytes of a node's name: a Linux host name has no more than 64.
const NODE_MAX: usize = 64;
/// The most bytes of an item.
const ITEM_MAX: usize = 64;
