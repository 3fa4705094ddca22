//! What is there: profiles, nodes, attachments, as the API server last told.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::{VnicAttachment, VnicProfile};

use crate::store::{NodeView, Store};

/// A consistent enough look at the cluster: each list is whole, and as old as its watch is behind.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// All VnicProfiles that can be read.
    pub profiles: Vec<Arc<VnicProfile>>,
    /// The names of the others.
    pub unreadable_profiles: BTreeSet<String>,
    /// All Nodes.
    pub nodes: Vec<Arc<NodeView>>,
    /// All VnicAttachments that can be read, whoever made them.
    pub attachments: Vec<Arc<VnicAttachment>>,
    /// The names of the others.
    pub unreadable_attachments: BTreeSet<String>,
}

impl Observed {
    /// As the store has it now.
    #[must_use]
    pub fn of(store: &Store) -> Self {
        let (profiles, attachments) = (store.profiles(), store.attachments());
        Self {
            profiles: profiles.iter().cloned().collect(),
            unreadable_profiles: profiles.unreadable().clone(),
            nodes: store.nodes().iter().cloned().collect(),
            attachments: attachments.iter().cloned().collect(),
            unreadable_attachments: attachments.unreadable().clone(),
        }
    }
}
