//! What is there: profiles, nodes, attachments, as the API server last told.

use std::sync::Arc;

use api::{VnicAttachment, VnicProfile};
use kube::core::DeserializeGuard;

use crate::node::Node;

/// A consistent enough look at the cluster: each list is whole, and as old as its watch is behind.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// An object of a later version may not be readable; it is there all the same.
    pub profiles: Vec<Arc<DeserializeGuard<VnicProfile>>>,
    /// All Nodes.
    pub nodes: Vec<Arc<Node>>,
    /// All VnicAttachments, whoever made them.
    pub attachments: Vec<Arc<DeserializeGuard<VnicAttachment>>>,
}
