//! The profiles, nodes and attachments that the watches delivered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::{VnicAttachment, VnicName, VnicProfile};
use vcn::Ocid;

use crate::cluster::store::{NodePools, NodeView, Store};

/// A snapshot of the cluster: each list is complete, and as old as its watch is behind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    pub profiles: Vec<Arc<VnicProfile>>,
    /// The names of the unreadable ones.
    pub unreadable_profiles: BTreeSet<String>,
    pub nodes: Vec<Arc<NodeView>>,
    /// The node pools that instances' metadata names, as far as they were read.
    pub pools: Arc<NodePools>,
    /// All readable VnicAttachments, of any requester.
    pub attachments: Vec<Arc<VnicAttachment>>,
    /// The names of the unreadable ones.
    pub unreadable_attachments: BTreeSet<String>,
}

/// The attachments, by name and by instance.
#[derive(Debug, Default)]
pub(crate) struct AttachmentIndex<'a> {
    pub objects: BTreeMap<&'a str, &'a VnicAttachment>,
    /// Names of unreadable ones: a later version wrote them.
    pub unreadable: BTreeSet<&'a str>,
    vnics: BTreeMap<(&'a Ocid, &'a VnicName), Vec<&'a VnicAttachment>>,
}

impl Observed {
    pub(crate) fn of(store: &Store) -> Self {
        let (profiles, attachments) = (store.profiles(), store.attachments());
        Self {
            profiles: profiles.iter().cloned().collect(),
            unreadable_profiles: profiles.unreadable().clone(),
            nodes: store.nodes().iter().cloned().collect(),
            pools: store.pools(),
            attachments: attachments.iter().cloned().collect(),
            unreadable_attachments: attachments.unreadable().clone(),
        }
    }
}

impl<'a> AttachmentIndex<'a> {
    pub(crate) fn of(observed: &'a Observed) -> Self {
        let mut there = Self::default();
        for object in &observed.attachments {
            there.objects.insert(object.metadata.name.as_deref().unwrap_or_default(), object);
        }
        // By name, so that a conflict always names the same one of several.
        for object in there.objects.values() {
            there.vnics.entry((&object.spec.instance_id, &object.spec.vnic.name)).or_default().push(object);
        }
        there.unreadable = observed.unreadable_attachments.iter().map(String::as_str).collect();
        there
    }

    /// Those for the VNIC of this name on this instance.
    pub(in crate::profile) fn in_place(&self, instance: &'a Ocid, name: &'a VnicName) -> &[&'a VnicAttachment] {
        self.vnics.get(&(instance, name)).map(Vec::as_slice).unwrap_or_default()
    }
}
