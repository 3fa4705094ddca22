//! What the leader shows of policies to `kubectl oke-node`.

use serde::{Deserialize, Serialize};

use crate::report::ItemReport;

/// Where the leader shows all policies; `/NAME` behind it shows one with its nodes.
pub const POLICIES_PATH: &str = "/policies";

/// All policies, as the leader shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PoliciesView {
    /// Why nothing is sent, while the stop switch is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    /// The policies, by name, without their nodes.
    pub policies: Vec<PolicyView>,
}

/// A policy, as the leader shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyView {
    /// The name of the policy.
    pub name: String,
    /// The revision of its spec.
    pub target: String,
    /// The last one that worked.
    pub stable: String,
    /// The reason of the condition Progressing.
    pub progress: String,
    /// That reason in words.
    pub message: String,
    /// The reason of the condition Applied.
    pub applied: String,
    /// Its nodes, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<PolicyNodeView>,
}

/// A node of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyNodeView {
    /// The name of the Node.
    pub node: String,
    /// Whether the policy selects it.
    pub is_selected: bool,
    /// Whether it is a canary.
    pub is_canary: bool,
    /// The revision that it has; empty without any.
    pub revision: String,
    /// The revision that it must have now.
    pub due: String,
    /// Where it is, in a word: [`NodeProgress`].
    pub progress: String,
    /// Why it does not change, or what is wrong.
    pub message: String,
    /// Items of the policy that are not as it says.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<ItemReport>,
}

/// Where a node is in a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeProgress {
    /// It has the revision and was watched long enough.
    Done,
    /// It has the revision and is watched.
    Soaking,
    /// The document was sent.
    Sent,
    /// It does not have the revision yet.
    Queued,
    /// A setting of the node failed.
    Failed,
    /// It does not answer, or its kubelet is not ready.
    Unavailable,
    /// Its agent takes no policies.
    Unsupported,
    /// It gets its earlier values.
    Undoing,
}

vcn::words!(NodeProgress: Done, Soaking, Sent, Queued, Failed, Unavailable, Unsupported, Undoing);
