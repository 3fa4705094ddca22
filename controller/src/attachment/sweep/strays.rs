//! VNICs of ours whose objects are gone, on instances that no object is about: looks do not come there.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use api::NAME_TAG;
use kube::ResourceExt;
use oci::{CloudView, Error};
use vcn::Ocid;

use super::{Named, Swept};
use crate::attachment::mark::{Mark, Uid};
use crate::attachment::observed::visible;
use crate::store::Store;

/// So many VNICs are asked for in one sweep: other clusters' attachments have such names, too.
const ASKED: usize = 200;

/// What is known of attachments that are named for objects that are not there.
#[derive(Debug, Default)]
pub struct Strays {
    /// By attachment: what the object of a VNIC of ours was called; none for another cluster's and for what was left to others.
    known: BTreeMap<Ocid, Option<String>>,
    told: BTreeSet<Uid>,
}

impl Strays {
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
        (before, now): (&Swept, &Swept),
    ) -> Result<usize, Error> {
        let suspects = suspects(store, before, now);
        self.known.retain(|attachment, _| now.is_named(attachment));
        let unknown = suspects.iter().filter(|(attachment, _)| !self.known.contains_key(attachment));
        for (attachment, named) in unknown.take(ASKED).cloned().collect::<Vec<_>>() {
            let Some(vnic) = visible(cloud.vnic(&named.vnic).await)? else { continue };
            let tags = vnic.value.freeform_tags;
            let ours = mark.owner(&tags).is_some_and(|uid| uid == named.uid);
            self.known.insert(attachment, ours.then(|| tags.get(NAME_TAG).cloned().unwrap_or_default()));
        }
        let objects = store.attachments();
        let is_stray = |(attachment, _): &&(Ocid, Named)| {
            // Objects of a later version are there, and their uids are not known.
            matches!(self.known.get(attachment), Some(Some(name)) if !objects.unreadable().contains(name))
        };
        let strays: BTreeMap<&Uid, &Ocid> =
            suspects.iter().filter(is_stray).map(|(_, named)| (&named.uid, &named.instance)).collect();
        for (uid, instance) in strays.iter().filter(|(uid, _)| !self.told.contains(**uid)) {
            tracing::warn!(event = "vnics.unclaimed", uids = uid, %instance, "a VNIC with our tags whose VnicAttachment is gone");
        }
        self.told = strays.keys().map(|uid| (*uid).clone()).collect();
        Ok(strays.len())
    }
}

fn suspects(store: &Store, before: &Swept, now: &Swept) -> Vec<(Ocid, Named)> {
    let objects = store.attachments();
    let present: HashSet<Uid> = objects.iter().filter_map(|object| object.uid()).collect();
    let looked_at: HashSet<&Ocid> = objects.instances().collect();
    let both = now.named().filter(|(attachment, _)| before.is_named(attachment));
    let suspects = both.filter(|(_, named)| !present.contains(&named.uid) && !looked_at.contains(&named.instance));
    suspects.map(|(attachment, named)| (attachment.clone(), named.clone())).collect()
}
