//! An object with its observed state and retry state, and the questions of the planner.

use std::time::Duration;

use api::AttachmentReason as Reason;
use api::{ConditionType, VNIC_FINALIZER, VnicAttachment, condition};
use backoff::Backoff;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use oci::AttachmentState;
use tokio::time::Instant;

use super::{PlanInput, TOKEN_LIFE};
use crate::attachment::mark::Uid;
use crate::attachment::observe::observed::{Observed, ObservedAttachment};
use crate::attachment::report::attachment_status::{AttachmentStatus, Facts, StatusReason};
use crate::attachment::report::event_diff;
use crate::attachment::state::retry_state::{FailedAttempt, RetryState};
use crate::work::Pause;

pub(super) struct Case<'a> {
    pub(super) object: &'a VnicAttachment,
    pub(super) name: String,
    pub(super) uid: Uid,
    pub(super) seen: Vec<&'a ObservedAttachment>,
    /// Whether the reported VNIC exists although no list has it.
    pub(super) is_unlisted: bool,
    pub(super) state: RetryState,
    read_at: Instant,
    pauses: Backoff,
}

impl<'a> Case<'a> {
    pub(super) fn of(input: &PlanInput<'_>, observed: &'a Observed, object: &'a VnicAttachment) -> Self {
        let uid = object.uid().unwrap_or_default();
        let reported = object.status.as_ref().and_then(|status| status.vnic_id.as_ref());
        Self {
            object,
            name: object.name_any(),
            seen: observed.attachments.iter().filter(|seen| seen.is_for(&uid)).collect(),
            is_unlisted: reported.is_some_and(|id| observed.unlisted.contains(id)),
            state: input.retry_states.get(&uid).cloned().unwrap_or_default(),
            read_at: input.read_at,
            pauses: input.pauses.clone(),
            uid,
        }
    }

    pub(super) fn age(&self) -> (Option<&Timestamp>, &str) {
        (self.object.metadata.creation_timestamp.as_ref().map(|time| &time.0), &self.name)
    }

    /// Whether its VNIC may have been requested with a token that OCI has forgotten.
    pub(super) fn outlived_tokens(&self, now: Timestamp) -> bool {
        let made = self.object.metadata.creation_timestamp.as_ref();
        made.is_some_and(|made| now.duration_since(made.0).unsigned_abs() >= TOKEN_LIFE)
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.object.metadata.deletion_timestamp.is_some()
    }

    /// The backoff before another request, if it follows one of these failures.
    pub(super) fn backoff_after(&self, attempts: &[FailedAttempt]) -> Option<(FailedAttempt, Pause)> {
        self.state.backoff(self.read_at, &self.pauses).filter(|(after, _)| attempts.contains(after))
    }

    /// For how long no VNIC of it was listed, since one was requested.
    pub(super) fn absent_for(&self) -> Duration {
        self.state.absent_for(self.read_at)
    }

    pub(super) fn has_finalizer(&self) -> bool {
        self.object.finalizers().iter().any(|finalizer| finalizer == VNIC_FINALIZER)
    }

    pub(super) fn has_name_of(&self, other: &Self) -> bool {
        self.object.spec.vnic.name == other.object.spec.vnic.name
    }

    /// Its claim to its name, the best first: it has a VNIC; its status reports one, or one in progress, which a list may
    /// lack; it is older.
    pub(super) fn claim(&self) -> impl Ord {
        let is_begun = matches!(
            self.reported_reason(),
            Some(Reason::Attaching | Reason::AttachFailed | Reason::DetachedOutOfBand)
        );
        (self.live().is_none(), !(self.was_attached() || is_begun), self.age())
    }

    /// The attachment that is, will be or was the object's; of two, the one in its status.
    pub(super) fn live(&self) -> Option<&'a ObservedAttachment> {
        let live = || self.seen.iter().copied().filter(|seen| seen.state() != AttachmentState::Detached);
        let counts = || live().filter(|seen| seen.state().counts());
        let named = counts()
            .find(|seen| self.reported_vnic().is_some() && self.reported_vnic() == seen.attachment.vnic_id.as_ref());
        named.or_else(|| counts().next()).or_else(|| live().next())
    }

    /// Its attachments in state DETACHED, in order.
    pub(super) fn records(&self) -> Vec<&'a str> {
        let all = self.seen.iter().filter(|seen| seen.state() == AttachmentState::Detached);
        let mut records: Vec<&str> = all.map(|seen| seen.attachment.id.as_str()).collect();
        records.sort_unstable();
        records
    }

    /// The VNIC in its status.
    pub(super) fn reported_vnic(&self) -> Option<&vcn::Ocid> {
        self.object.status.as_ref()?.vnic_id.as_ref()
    }

    pub(super) fn reported(&self, kind: ConditionType) -> Option<&condition::Condition> {
        event_diff::condition(self.object, kind)
    }

    /// The stage of the object's life that its status reports: the reason of its condition Attached.
    pub(super) fn reported_reason(&self) -> Option<Reason> {
        Reason::from_word(&self.reported(ConditionType::Attached)?.reason)
    }

    /// Whether its status reports a VNIC: if that is missing, another program detached it.
    pub(super) fn was_attached(&self) -> bool {
        self.reported_vnic().is_some()
    }

    /// Whether its status reports this one.
    pub(super) fn is_reported_vnic(&self, seen: &ObservedAttachment) -> bool {
        self.was_attached() && self.reported_vnic() == seen.attachment.vnic_id.as_ref()
    }

    /// What is known of an invisible VNIC: the reported one, or its OCID. It stays in the status while it is listed, so that
    /// its later absence is noticed.
    pub(super) fn facts_of(&self, seen: &ObservedAttachment) -> Facts {
        if self.is_reported_vnic(seen) {
            return event_diff::last(self.object.status.as_ref()).facts;
        }
        let is_there = seen.state() == AttachmentState::Attached;
        Facts { vnic_id: seen.attachment.vnic_id.clone().filter(|_| is_there), ..Facts::default() }
    }

    /// Whether the reported VNIC is listed as DETACHED.
    pub(super) fn is_listed_gone(&self) -> bool {
        let reported = self.reported_vnic();
        let mut dead = self.seen.iter().filter(|seen| seen.state() == AttachmentState::Detached);
        reported.is_some() && dead.any(|seen| seen.attachment.vnic_id.as_ref() == reported)
    }

    /// Whether no list has the reported VNIC, neither alive nor dead.
    pub(super) fn is_missing(&self) -> bool {
        self.was_attached() && self.live().is_none() && !self.is_listed_gone()
    }

    /// Whether the VNIC was seen while the object was being deleted, and is now DETACHED. No other is requested after that.
    pub(super) fn was_taken_off(&self) -> bool {
        let is_seen = matches!(
            self.reported_reason(),
            Some(Reason::Detaching | Reason::DetachFailed | Reason::UsedByPods | Reason::InUse)
        );
        self.is_leaving() && is_seen && self.is_listed_gone()
    }

    /// Whether the reported status is about the present spec.
    pub(super) fn is_reported_in_this_generation(&self) -> bool {
        let reported = self.object.status.as_ref();
        reported.is_some_and(|reported| reported.observed_generation == self.object.metadata.generation)
    }

    /// The last reported status.
    pub(super) fn as_reported(&self) -> AttachmentStatus {
        let cause = |reported: &condition::Condition| {
            let reason = Reason::from_word(&reported.reason).map(Reason::planned);
            reason.map(|reason| StatusReason::new(reason, reported.message.clone()))
        };
        let last = event_diff::last(self.object.status.as_ref());
        AttachmentStatus {
            attached: self.reported(ConditionType::Attached).and_then(cause).unwrap_or(last.attached),
            ready: self.reported(ConditionType::Ready).and_then(cause),
            ..last
        }
    }

    /// The last reported status; or this one, if there was none.
    pub(super) fn as_reported_or(&self, reason: Reason, message: &str) -> AttachmentStatus {
        if self.reported(ConditionType::Attached).is_some() {
            self.as_reported()
        } else {
            AttachmentStatus::without_vnic(reason, message)
        }
    }
}
