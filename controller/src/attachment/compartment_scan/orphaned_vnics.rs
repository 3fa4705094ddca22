//! VNICs of ours whose objects are gone, on instances that no object is about: looks do not come there.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use api::NAME_TAG;
use kube::ResourceExt;
use oci::{CloudView, Error};
use tokio::time::Instant;
use vcn::Ocid;

use super::{CompartmentScan, Named};
use crate::attachment::mark::{Mark, Uid};
use crate::attachment::refusal::visible;
use crate::cluster::store::Store;

/// So many VNICs are asked for in one sweep: other clusters' attachments have such names, too.
const ASKED: usize = 200;
/// What is not to be seen is asked for again after this time: a policy may have come. Others that were never asked for come first.
const UNSEEN: Duration = Duration::from_hours(1);

/// What is known of attachments that are named for objects that are not there.
#[derive(Debug, Default)]
pub struct OrphanedVnics {
    /// By attachment.
    known: BTreeMap<Ocid, Known>,
    told: BTreeSet<Uid>,
}

#[derive(Clone, Debug)]
enum Known {
    /// A VNIC of ours, and what its object was called.
    Ours(String),
    /// Another cluster's, or left to others.
    Others,
    /// Not to be seen, then.
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
    /// How many there are on instances without objects. Only what two lists in turn have counts: between one list and now,
    /// an object may have gone, and its VNIC before it.
    ///
    /// # Errors
    /// When the cloud does not answer.
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
                    Known::Ours(tags.get(NAME_TAG).cloned().unwrap_or_default())
                }
                Some(_) => Known::Others,
                None => Known::Unseen(Instant::now()),
            };
            self.known.insert(attachment, known);
        }
        let objects = store.attachments();
        let is_stray = |(attachment, _): &&(Ocid, Named)| {
            // Objects of a later version are there, and their uids are not known.
            matches!(self.known.get(attachment), Some(Known::Ours(name)) if !objects.unreadable().contains(name))
        };
        let strays: BTreeMap<&Uid, &Ocid> =
            suspects.iter().filter(is_stray).map(|(_, named)| (&named.uid, &named.instance)).collect();
        for (uid, instance) in strays.iter().filter(|(uid, _)| !self.told.contains(**uid)) {
            tracing::warn!(event = "vnics.unclaimed", uids = uid, %instance, "a VNIC with our tags has no VnicAttachment");
        }
        self.told = strays.keys().map(|uid| (*uid).clone()).collect();
        Ok(strays.len())
    }

    /// Those to ask for in this sweep.
    fn open(&self, suspects: &[(Ocid, Named)]) -> Vec<(Ocid, Named)> {
        let mut open: Vec<_> = suspects
            .iter()
            .filter_map(|suspect| match self.known.get(&suspect.0) {
                None => Some((None, suspect)),
                Some(Known::Unseen(asked)) if asked.elapsed() >= UNSEEN => Some((Some(*asked), suspect)),
                Some(_) => None,
            })
            .collect();
        open.sort_by_key(|(asked, _)| *asked);
        open.into_iter().take(ASKED).map(|(_, suspect)| suspect.clone()).collect()
    }
}

fn suspects(store: &Store, scans: ConsecutiveScans<'_>) -> Vec<(Ocid, Named)> {
    let objects = store.attachments();
    let present: HashSet<Uid> = objects.iter().filter_map(|object| object.uid()).collect();
    let looked_at: HashSet<&Ocid> = objects.instances().collect();
    let both = scans.now.named().filter(|(attachment, _)| scans.before.is_named(attachment));
    let suspects = both.filter(|(_, named)| !present.contains(&named.uid) && !looked_at.contains(&named.instance));
    suspects.map(|(attachment, named)| (attachment.clone(), named.clone())).collect()
}
