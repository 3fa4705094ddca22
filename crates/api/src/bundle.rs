//! What the agent, the controller's leader and `kubectl oke-node` agree on for support bundles.

use serde::{Deserialize, Serialize};

/// Where an agent sends the bundle of its node to the controller.
pub const AGENT_BUNDLE_PATH: &str = "/v1/bundle";
/// Where the leader sends the controller's bundle with those of nodes: `/bundle?node=NAME&node=NAME`.
pub const VIEW_BUNDLE_PATH: &str = "/bundle";
/// The ServiceAccount whose token opens the leader's bundle. It has no rights: who may create a token of it may read bundles.
pub const BUNDLE_ACCOUNT: &str = "oke-node-bundle";
/// The audience of such a token, so that the API server accepts it for nothing.
pub const BUNDLE_AUDIENCE: &str = "oke-node-bundle";
/// The most nodes in a bundle.
pub const BUNDLE_NODES_MAX: usize = 20;
/// The entry with the [`BundleIndex`].
pub const BUNDLE_INDEX: &str = "index.json";

/// What the leader's bundle has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BundleIndex {
    /// In the order of the request.
    pub nodes: Vec<BundledNode>,
}

/// A node's part of a bundle.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BundledNode {
    /// The name of the Node object.
    pub name: String,
    /// How many entries of the archive are of this node.
    pub entries: u64,
    /// The bytes of their content.
    pub bytes: u64,
    /// What is missing, and why; none if it is complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}
