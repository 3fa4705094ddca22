//! The part of a summary about the node's policies: from it the controller knows whether to request the answer.

use serde::{Deserialize, Serialize};

/// The policies of a node. An agent that takes none, such as one of 0.2.0, has no such part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodePolicyState {
    /// The revision of the document that the agent holds; empty without any.
    pub document: String,
    /// What distinguishes its present answer about that document.
    pub answer: String,
    /// Whether its documents may have files.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub files: bool,
}
