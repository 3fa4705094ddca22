//! `NodePolicy`: kernel settings, link options and files of a set of nodes. Users write the spec; the controller sends it to the agents,
//! a canary first, and writes the status.
#![expect(unreachable_pub, reason = "KubeSchema writes a public copy of each struct into a function")]

mod files;
mod links;
mod reservations;
mod rollout;
mod settings;
mod size;
mod status;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

pub use files::{
    CONTENT_MAX, DROP_IN_SUFFIX, FILE_NAME_MAX, FILES_MAX, FileGrant, FileMode, HOST_FOLDERS, HostFile, HostFolder,
    HostUnit, KUBELET_FOLDER, SYSCTL_FOLDER, SYSTEMD_FOLDER,
};
pub use links::{LinkChannels, LinkOffloads, LinkRings, LinkSelector, LinkSettings};
pub use reservations::KubeletReservations;
pub use rollout::{Canary, FailureAction, NodeShare, Rollout};
pub use settings::{HugePageMode, HugePages, NodeSettings, RootDisk};
pub(crate) use size::selector as selector_size;
pub use size::{OBJECT_MAX, OBJECT_WITH_FILES_MAX};
pub use status::{CANARIES_MAX, FAILING_MAX, FailingNode, NodePolicyStatus, PolicyCounts, StableRevision};

/// Which nodes have which settings, and how they get them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "oke.oraclecloud.com",
    version = "v1alpha1",
    kind = "NodePolicy",
    plural = "nodepolicies",
    shortname = "nodepol",
    category = "oke",
    status = "NodePolicyStatus",
    derive = "PartialEq",
    doc = "Kernel settings, link options and files of a set of nodes.",
    validation = Rule::new("size(self.metadata.name) <= 63 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')").message("a NodePolicy's name is a DNS label")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
#[x_kube(
    validation = Rule::new("(has(self.allNodes) && self.allNodes) != (has(self.nodeSelector) && ((has(self.nodeSelector.matchLabels) && size(self.nodeSelector.matchLabels) > 0) || (has(self.nodeSelector.matchExpressions) && size(self.nodeSelector.matchExpressions) > 0)))")
        .message("a policy needs a nodeSelector with a label or an expression, or allNodes: true")
        .field_path(".nodeSelector"),
    validation = Rule::new(size::selector(512).as_str())
        .message("is too large: names and values of a nodeSelector take at most 512 characters")
        .field_path(".nodeSelector")
)]
pub struct NodePolicySpec {
    /// Selects Nodes by their labels: at least one label or expression, 512 characters at most; none if absent, and then
    /// allNodes must be true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub node_selector: Option<LabelSelector>,
    /// If true, the policy selects all Nodes, without nodeSelector; false if absent.
    #[serde(default, skip_serializing_if = "is_false")]
    pub all_nodes: bool,
    /// Decides between policies that name the same setting of a node: the higher one applies, of equal ones the older object;
    /// 0 to 1000, 100 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::integer::<0, 1000>")]
    pub priority: Option<u16>,
    /// What agents do: Report (they compare and change nothing) or Apply; Report if absent. After a change from Apply to Report, agents
    /// restore the earlier values.
    #[serde(default, skip_serializing_if = "PolicyMode::is_report")]
    pub mode: PolicyMode,
    /// If true, no further node gets the policy, and a failure still rolls back; false if absent.
    #[serde(default, skip_serializing_if = "is_false")]
    pub paused: bool,
    /// What happens on a node that the policy no longer selects, or whose policy is deleted; Restore if absent. Restore: the
    /// values of this boot come back, in the rollout's batches. Keep: the values stay, and the policy ends at once.
    #[serde(default, skip_serializing_if = "PolicyRemoval::is_restore")]
    pub on_delete: PolicyRemoval,
    /// What the nodes must have.
    pub settings: NodeSettings,
    /// How nodes get it; the defaults of each field if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
}

/// What agents do with a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum PolicyMode {
    /// They compare, and change nothing.
    #[default]
    Report,
    /// They set what differs.
    Apply,
}

/// What happens to the values when a policy leaves a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PolicyRemoval {
    /// The values of this boot come back.
    #[default]
    Restore,
    /// They stay.
    Keep,
}

/// The priority of a policy that names none.
pub const PRIORITY: u16 = 100;

impl NodePolicySpec {
    /// The priority of the spec, or [`PRIORITY`] if the spec has none.
    pub fn priority(&self) -> u16 {
        self.priority.unwrap_or(PRIORITY)
    }
}

impl PolicyMode {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it by reference")]
    const fn is_report(&self) -> bool {
        matches!(self, Self::Report)
    }
}

impl PolicyRemoval {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it by reference")]
    const fn is_restore(&self) -> bool {
        matches!(self, Self::Restore)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it by reference")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}
