//! What one process remembers of an instance between two reconciles. Losing it costs a call or some seconds, nothing else.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use api::{AttachmentReason, VnicAttachment};
use backoff::Backoff;
use kube::ResourceExt;
use vcn::Ocid;

use crate::attachment::mark::Uid;
use crate::attachment::observe::observed::{Observed, ObservedAttachment};
use crate::attachment::state::retry_state::{FailedAttempt, ReadTimes, RetryState};
use crate::report::metrics::Metrics;
use crate::work::Pause;

#[derive(Clone, Debug, Default)]
pub(in crate::attachment) struct InstanceMemory {
    /// By the uid of the object.
    pub(in crate::attachment) objects: HashMap<Uid, RetryState>,
    /// Why the state could not be read at the last reconcile.
    pub(in crate::attachment) unreadable: Option<AttachmentReason>,
    /// How many attaches and detaches were refused.
    refusals: u64,
    /// In how many reconciles in a row something had to wait for the pod network.
    held: u32,
    /// How many VNICs had our tags and no object at the last reconcile.
    pub(in crate::attachment) unclaimed: usize,
}

impl InstanceMemory {
    pub(in crate::attachment) fn of(&mut self, uid: &str) -> &mut RetryState {
        self.objects.entry(uid.to_owned()).or_default()
    }

    /// Records what was read. Counts finished and failed attempts.
    pub(in crate::attachment) fn note(
        &mut self,
        all: &[Arc<VnicAttachment>],
        observed: &Observed,
        times: ReadTimes,
        metrics: &Metrics,
    ) {
        let uids: HashSet<Uid> = all.iter().filter_map(|object| object.uid()).collect();
        self.objects.retain(|uid, _| uids.contains(uid));
        for object in all {
            let uid = object.uid().unwrap_or_default();
            let own: Vec<&ObservedAttachment> = observed.attachments.iter().filter(|seen| seen.is_for(&uid)).collect();
            let (took, failed) = self.of(&uid).note(object, &own, &observed.machine, times);
            took.into_iter().for_each(|took| metrics.attach_seconds.observe(took.as_secs_f64()));
            if let Some(kind) = failed.and_then(FailedAttempt::kind) {
                self.refused(&uid);
                let object = object.name_any();
                tracing::warn!(event = "step.undone", object, kind, "OCI accepted a request and did not carry it out");
                metrics.undone(kind);
            }
        }
    }

    /// Notes whether something has to wait for the pod network. Returns for how long, without jitter: the queue adds it.
    pub(in crate::attachment) fn held(&mut self, is_held: bool, pauses: &Backoff) -> Option<Pause> {
        self.held = if is_held { self.held.saturating_add(1) } else { 0 };
        is_held.then(|| Pause { left: pauses.delay(self.held, 1.0), number: self.held })
    }

    /// Nothing could be read: that something is missing has to be proven again.
    pub(in crate::attachment) fn forget_absences(&mut self) {
        self.objects.values_mut().for_each(|object| object.forget_absence());
    }

    /// The attach or detach of an object was refused: another object is next.
    pub(in crate::attachment) fn refused(&mut self, uid: &str) {
        self.refusals = self.refusals.saturating_add(1);
        self.of(uid).refused = Some(self.refusals);
    }

    /// The attachments whose detach was accepted, as long as it may be carried out.
    pub(in crate::attachment) fn accepted_detaches(&self) -> BTreeSet<Ocid> {
        self.objects.values().filter_map(|object| object.accepted_detach().cloned()).collect()
    }
}
