//! VNICs with our marks whose objects are gone, on instances without objects: reconciles do not reach them.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use api::NAME_TAG;
use kube::ResourceExt;
use oci::{CloudView, Error};
use tokio::time::Instant;
use vcn::Ocid;

use super::{CompartmentScan, NamedAttachment};
use crate::attachment::mark::{Mark, Uid};
use crate::attachment::refusal::visible;
use crate::cluster::store::Store;

/// How many VNICs are read in one scan: attachments of other clusters have such names too.
const ASKED: usize = 200;
/// An invisible VNIC is read again after this time, because a policy may have been added. Unread ones come first.
const UNSEEN: Duration = Duration::from_hours(1);

/// What is known about attachments that are named for missing objects.
#[derive(Debug, Default)]
pub struct OrphanedVnics {
    /// By attachment.
    known: BTreeMap<Ocid, VnicStatus>,
    told: BTreeSet<Uid>,
}

#[derive(Clone, Debug)]
enum VnicStatus {
    /// A VNIC with our marks, and its object's name.
    Ours(String),
    /// Another cluster's, or released.
    Others,
    /// Not visible at that time.
    Unseen(Instant),
}

/// Two scans of the same compartments, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct ConsecutiveScans<'a> {
    /// The earlier one.
    pub before: &'a CompartmentScan,
    /// The later one.
    pub now: &'a CompartmentScan,
}

impl OrphanedVnics {
    /// How many there are on instances without objects. Only those in two lists in a row count: after one list, the object
    /// may have gone, and its VNIC before it.
    ///
    /// # Errors
    /// When OCI does not answer.
    pub async fn count<C: CloudView>(
        &mut self,
        cloud: &C,
        mark: &Mark,
        store: &Store,
        scans: ConsecutiveScans<'_>,
    ) -> Result<usize, Error> {
        let suspects = suspects(store, scans);
        self.known.retain(|attachment, _| scans.now.is_named(attachment));
        for (attachment, named) in self.open(&suspects) {
            let known = match visible(cloud.vnic(&named.vnic).await)?.map(|vnic| vnic.value.freeform_tags) {
                Some(tags) if mark.owner(&tags).is_some_and(|uid| uid == named.uid) => {
                    VnicStatus::Ours(tags.get(NAME_TAG).cloned().unwrap_or_default())
                }
                Some(_) => VnicStatus::Others,
                None => VnicStatus::Unseen(Instant::now()),
            };
            self.known.insert(attachment, known);
        }
        let objects = store.attachments();
        let is_stray = |(attachment, _): &&(Ocid, NamedAttachment)| {
            // Objects of a later version exist, but their uids are unknown.
            matches!(self.known.get(attachment), Some(VnicStatus::Ours(name)) if !objects.unreadable().contains(name))
        };
        let orphaned: BTreeMap<&Uid, &Ocid> =
            suspects.iter().filter(is_stray).map(|(_, named)| (&named.uid, &named.instance)).collect();
        for (uid, instance) in orphaned.iter().filter(|(uid, _)| !self.told.contains(**uid)) {
            tracing::warn!(event = "vnics.unclaimed", uids = uid, %instance, "a VNIC with our tags has no VnicAttachment");
        }
        self.told = orphaned.keys().map(|uid| (*uid).clone()).collect();
        Ok(orphaned.len())
    }

    /// Those to read in this scan.
    fn open(&self, suspects: &[(Ocid, NamedAttachment)]) -> Vec<(Ocid, NamedAttachment)> {
        let mut open: Vec<_> = suspects
            .iter()
            .filter_map(|suspect| match self.known.get(&suspect.0) {
                None => Some((None, suspect)),
                Some(VnicStatus::Unseen(asked)) if asked.elapsed() >= UNSEEN => Some((Some(*asked), suspect)),
                Some(_) => None,
            })
            .collect();
        open.sort_by_key(|(asked, _)| *asked);
        open.into_iter().take(ASKED).map(|(_, suspect)| suspect.clone()).collect()
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
