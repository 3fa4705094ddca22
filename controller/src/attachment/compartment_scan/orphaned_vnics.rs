//! VNICs with our marks whose objects are gone, on instances without objects: reconciles do not reach them.

use std::collections::{BTreeMap, HashSet};

use api::NAME_TAG;
use kube::ResourceExt;
use oci::{CloudView, Error};
use vcn::Ocid;

use super::{CompartmentScan, NamedAttachment};
use crate::attachment::mark::{Mark, Uid};
use crate::attachment::refusal::visible;
use crate::cluster::store::Store;

/// How many VNICs are read in one scan: attachments of other clusters have such names too.
const MAX_VNIC_READS: usize = 200;

/// What is known about attachments that are named for missing objects.
#[derive(Debug, Default)]
pub(super) struct OrphanedVnics {
    /// The name of the object in the tags of a VNIC with our marks, by attachment; `None` if the VNIC is invisible, released, or
    /// another cluster's.
    known: BTreeMap<Ocid, Option<String>>,
}

/// Two scans of the same compartments, one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConsecutiveScans<'a> {
    pub(super) before: &'a CompartmentScan,
    pub(super) now: &'a CompartmentScan,
}

impl OrphanedVnics {
    /// How many there are on instances without objects. Only those in two lists in a row count: after one list, the object
    /// may have gone, and its VNIC before it.
    pub(super) async fn count(
        &mut self,
        cloud: &CloudView,
        mark: &Mark,
        store: &Store,
        scans: ConsecutiveScans<'_>,
    ) -> Result<usize, Error> {
        let suspects = suspects(store, scans);
        self.known.retain(|attachment, _| scans.now.is_named(attachment));
        let unread: Vec<_> =
            suspects.iter().filter(|(id, _)| !self.known.contains_key(id)).take(MAX_VNIC_READS).collect();
        for (attachment, named) in unread {
            let tags = visible(cloud.vnic(&named.vnic).await)?.map(|vnic| vnic.value.freeform_tags);
            let ours = tags.filter(|tags| mark.owner(tags).as_ref() == Some(&named.uid));
            if ours.is_some() {
                let (uids, instance) = (&named.uid, &named.instance);
                tracing::warn!(event = "vnics.unclaimed", uids, %instance, "a VNIC with our tags has no VnicAttachment");
            }
            let name = ours.map(|tags| tags.get(NAME_TAG).cloned().unwrap_or_default());
            self.known.insert(attachment.clone(), name);
        }
        let objects = store.attachments();
        let is_orphaned = |(attachment, _): &&(Ocid, NamedAttachment)| {
            // Objects of a later version exist, but their uids are unknown.
            matches!(self.known.get(attachment), Some(Some(name)) if !objects.unreadable().contains(name))
        };
        Ok(suspects.iter().filter(is_orphaned).count())
    }
}

fn suspects(store: &Store, scans: ConsecutiveScans<'_>) -> Vec<(Ocid, NamedAttachment)> {
    let objects = store.attachments();
    let present: HashSet<Uid> = objects.iter().filter_map(|object| object.uid()).collect();
    let looked_at: HashSet<&Ocid> = objects.instances().collect();
    let both = scans.now.named().filter(|(attachment, _)| scans.before.is_named(attachment));
    let suspects = both.filter(|(_, named)| !present.contains(&named.uid) && !looked_at.contains(&named.instance));
    suspects.map(|(attachment, named)| (attachment.clone(), named.clone())).collect()
}
