//! What one process remembers of an instance between two reconciles. Losing it costs a call or some seconds, nothing else.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use api::{AttachmentReason, VnicAttachment, VnicAttachmentStatus};
use backoff::Backoff;
use kube::ResourceExt;
use oci::AttachmentState;
use tokio::time::Instant;
use vcn::Ocid;

use crate::attachment::apply::Outcome;
use crate::attachment::mark::Uid;
use crate::attachment::observe::observed::{Observed, ObservedAttachment, Owner};
use crate::attachment::plan::Plan;
use crate::attachment::plan::step::{Action, Step};
use crate::attachment::refusal::is_no_answer;
use crate::attachment::report::attachment_status::StatusReason;
use crate::attachment::state::failed_attempts::FailedAttempt;
use crate::attachment::state::retry_state::{ReadTimes, Refused, RetryState};
use crate::work::Pause;

/// News in a list.
#[derive(Debug, Default)]
pub(in crate::attachment) struct News {
    /// How long attaching took for those that are attached now.
    pub(in crate::attachment) took: Vec<Duration>,
    /// Attempts that failed, by the object's name.
    pub(in crate::attachment) setbacks: Vec<(String, FailedAttempt)>,
}

/// An instance.
#[derive(Debug, Default)]
pub(in crate::attachment) struct InstanceMemory {
    /// Boxed: a table of few has more places than objects, and these are large.
    pub(in crate::attachment) objects: HashMap<Uid, Box<RetryState>>,
    /// Attachments of other owners.
    pub(in crate::attachment) foreign: HashSet<Ocid>,
    /// Why nothing could be read at the last reconcile.
    pub(in crate::attachment) unreadable: Option<AttachmentReason>,
    /// Objects of which the known state was stale when it was last acted upon.
    pub(in crate::attachment) stale: BTreeSet<String>,
    /// Addresses whose release was answered 404, as long as they are to be released.
    pub(in crate::attachment) unreleased: BTreeSet<Ocid>,
    /// How many attaches and detaches were refused.
    refusals: u64,
    /// In how many reconciles in a row something had to wait for the pod network.
    held: u32,
    /// Why the pod network could not be read the last time.
    pub(in crate::attachment) unread_pod_network: Option<String>,
    /// Whether something waited at the last reconcile for an answer about it.
    pub(in crate::attachment) unanswered_pod_network: bool,
    /// How many VNICs had our tags and no object at the last reconcile.
    pub(in crate::attachment) unclaimed: usize,
}

impl InstanceMemory {
    /// All of it, for one reconcile. What is summed over all instances stays here meanwhile.
    pub(in crate::attachment) fn lend(&mut self) -> Self {
        let counted = Self { unclaimed: self.unclaimed, ..Self::default() };
        mem::replace(self, counted)
    }

    /// The retry state of an object.
    pub(in crate::attachment) fn of(&mut self, uid: &str) -> &mut RetryState {
        self.objects.entry(uid.to_owned()).or_default()
    }

    /// Records what was read.
    pub(in crate::attachment) fn note(
        &mut self,
        all: &[Arc<VnicAttachment>],
        observed: &Observed,
        times: ReadTimes,
    ) -> News {
        let uids: HashSet<Uid> = all.iter().filter_map(|object| object.uid()).collect();
        self.objects.retain(|uid, _| uids.contains(uid));
        let listed: HashSet<&Ocid> = observed.attachments.iter().map(|seen| &seen.attachment.id).collect();
        self.foreign.retain(|id| listed.contains(id));
        let is_foreign =
            |seen: &&ObservedAttachment| seen.owner == Owner::Foreign && seen.state() == AttachmentState::Attached;
        let foreign = observed.attachments.iter().filter(is_foreign);
        self.foreign.extend(foreign.map(|seen| seen.attachment.id.clone()));
        let mut news = News::default();
        for object in all {
            let uid = object.uid().unwrap_or_default();
            let own: Vec<&ObservedAttachment> = observed.attachments.iter().filter(|seen| seen.is_for(&uid)).collect();
            let (took, setback) = self.of(&uid).note(object, &own, &observed.machine, times);
            news.took.extend(took);
            let Some(setback) = setback else { continue };
            news.setbacks.push((object.name_any(), setback));
            if setback != FailedAttempt::Loss {
                // Another object is next.
                self.refused(&uid, setback.said());
                self.of(&uid).declined();
            }
        }
        news
    }

    /// Notes whether something has to wait for the pod network. Returns for how long, without jitter: the queue adds it.
    pub(in crate::attachment) fn held(&mut self, is_held: bool, pauses: &Backoff) -> Option<Pause> {
        self.held = if is_held { self.held.saturating_add(1) } else { 0 };
        is_held.then(|| Pause { left: pauses.delay(self.held, 1.0), number: self.held })
    }

    /// Whether something waits for an answer about the pod network, and did so at the last reconcile.
    pub(in crate::attachment) fn is_unanswered_again(&mut self, planned: &Plan) -> bool {
        let is_unanswered =
            planned.verdicts.values().any(|verdict| verdict.attached.reason == AttachmentReason::PodNetworkUnanswered);
        mem::replace(&mut self.unanswered_pod_network, is_unanswered) && is_unanswered
    }

    /// Nothing could be read: that something is missing has to be proven again.
    pub(in crate::attachment) fn forget_absences(&mut self) {
        self.objects.values_mut().for_each(|object| object.forget_absence());
    }

    /// Its attach or detach was refused: the next turn is another object's. A missing answer does not replace an answer.
    pub(in crate::attachment) fn refused(&mut self, uid: &str, said: StatusReason) {
        self.refusals = self.refusals.saturating_add(1);
        let turn = self.refusals;
        let object = self.of(uid);
        // As `is_worth_telling` has it: while others are tried, the object keeps the answer to its own request.
        let is_kept =
            |before: &StatusReason| !is_no_answer(before.reason) && before.reason != AttachmentReason::InstanceBusy;
        let before = object.refused.take().map(|refused| refused.said).filter(is_kept);
        let said = before.filter(|_| is_no_answer(said.reason)).unwrap_or(said);
        object.refused = Some(Refused { turn, said });
    }

    /// The attachments whose detach was accepted, as long as it may be carried out.
    pub(in crate::attachment) fn detaches(&self) -> BTreeSet<Ocid> {
        self.objects.values().filter_map(|object| object.backlog.detaches().cloned()).collect()
    }

    /// Notes the releases of a plan that was applied.
    pub(in crate::attachment) fn released(&mut self, planned: &Plan, outcome: &Outcome) {
        let is_open = |id: &Ocid| {
            let is = |step: &Step| matches!(&step.action, Action::DeleteAddress { id: own, .. } if own == id);
            planned.steps.iter().any(is) && !outcome.done.iter().any(is)
        };
        self.unreleased.retain(is_open);
        self.unreleased.extend(outcome.unreleased.iter().cloned());
    }

    /// The status that was written last, as long as the watch may be stale.
    pub(in crate::attachment) fn written(&self, uid: &str, now: Instant) -> Option<&VnicAttachmentStatus> {
        self.objects.get(uid)?.written(now)
    }
}
