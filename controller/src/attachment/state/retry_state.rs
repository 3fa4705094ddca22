//! What one process remembers of one object between two reconciles. Losing it costs a call or some seconds, never a VNIC: the
//! object's status and OCI's lists are the memory. Pure.
//!
//! A backoff follows requests that OCI accepts but does not apply, and VNICs that are detached again and again. It grows with
//! the number of DETACHED records that OCI lists. Every process sees the same records, so the number survives.

#[cfg(test)]
pub(in crate::attachment) mod tests;

use std::collections::BTreeSet;
use std::time::Duration;

use api::{AttachmentReason as Reason, VnicAttachment};
use backoff::Backoff;
use oci::AttachmentState;
use tokio::time::Instant;
use vcn::Ocid;

use crate::attachment::observe::observed::{Machine, ObservedAttachment, ObservedVnic};
use crate::attachment::report::attachment_status::StatusReason;
use crate::work::Pause;

/// When something was read: what a list lacks means something only together with these times.
#[derive(Clone, Copy, Debug)]
pub(in crate::attachment) struct ReadTimes {
    /// When it was requested: what it lacks may have come since.
    pub(in crate::attachment) requested_at: Instant,
    /// When the answer was there.
    pub(in crate::attachment) now: Instant,
    /// For how long a VNIC must be missing from lists until it is certain that there is none.
    pub(in crate::attachment) proof: Duration,
}

/// The outcome of an accepted request, or of a VNIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailedAttempt {
    /// The VNIC was not attached after all.
    Attach,
    /// The VNIC was not detached after all.
    Detach,
    /// Another program detached the VNIC, not for the first time.
    Loss,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct RetryState {
    /// Its place among the refusals of the instance, since an attach or detach of it was accepted.
    pub(in crate::attachment) refused: Option<u64>,
    /// How many tokens of addresses OCI found spent.
    pub(in crate::attachment) spent_address_tokens: u32,
    /// In how many reconciles in a row its VNIC was listed as attached, and it or its addresses could not be read.
    pub(in crate::attachment) unseen_reconciles: u32,
    /// Its attachments that the last list had as DETACHED; `None` before the first list, because their age is unknown.
    records: Option<BTreeSet<Ocid>>,
    failure: Option<Failure>,
    /// The attachment whose detach OCI accepted, and when.
    detach: Option<(Ocid, Instant)>,
    absent_since: Option<Instant>,
    unlisted_since: Option<Instant>,
    /// When OCI accepted the attach.
    attaching_since: Option<Instant>,
    /// When addresses were requested in bulk, for which generation of the spec.
    bulk: Option<(Instant, Option<i64>)>,
}

/// The last attempt that failed.
#[derive(Clone, Copy, Debug)]
struct Failure {
    attempt: FailedAttempt,
    number: u32,
    at: Instant,
    /// The object's generation: a changed spec may request something else.
    generation: Option<i64>,
}

impl FailedAttempt {
    /// The message. Constant, so that nothing is written while it continues.
    pub(crate) fn status_reason(self) -> StatusReason {
        let (reason, words) = match self {
            Self::Attach => (
                Reason::AttachFailed,
                "OCI accepted the request and dropped the VNIC before it was attached; retried with backoff",
            ),
            Self::Detach => {
                (Reason::DetachFailed, "OCI accepted the request, and the VNIC is still attached; retried with backoff")
            }
            Self::Loss => (
                Reason::DetachedOutOfBand,
                "the VNIC was detached outside the controller again; it is attached again with backoff",
            ),
        };
        StatusReason::new(reason, words)
    }

    /// Its name in metrics; a loss is counted when it is reported.
    pub(crate) const fn kind(self) -> Option<&'static str> {
        match self {
            Self::Attach => Some("attach"),
            Self::Detach => Some("detach"),
            Self::Loss => None,
        }
    }
}

/// For the planner; `now` is when the lists were requested.
impl RetryState {
    /// For how long no VNIC of the object was listed, since one was requested.
    pub(in crate::attachment) fn absent_for(&self, now: Instant) -> Duration {
        since(self.absent_since, now)
    }

    /// For how long none was, whatever was requested meanwhile.
    pub(in crate::attachment) fn unlisted_for(&self, now: Instant) -> Duration {
        since(self.unlisted_since, now)
    }

    /// The last failure, and the rest of the backoff after it, without jitter: the queue adds it.
    pub(in crate::attachment) fn backoff(&self, now: Instant, pauses: &Backoff) -> Option<(FailedAttempt, Pause)> {
        let Failure { attempt, number, at, .. } = self.failure?;
        let left = pauses.delay(number, 1.0).saturating_sub(now.saturating_duration_since(at));
        (!left.is_zero()).then_some((attempt, Pause { left, number }))
    }

    /// The attachment whose detach OCI accepted, while it may be carried out.
    pub(in crate::attachment) fn accepted_detach(&self) -> Option<&Ocid> {
        self.detach.as_ref().map(|(attachment, _)| attachment)
    }

    /// How long ago addresses of this generation of the spec were requested in bulk, if they were.
    pub(in crate::attachment) fn bulk_age(&self, generation: Option<i64>, now: Instant) -> Option<Duration> {
        let (at, _) = self.bulk.filter(|(_, of)| *of == generation)?;
        Some(now.saturating_duration_since(at))
    }
}

impl RetryState {
    /// Takes note of what was read of the object. Returns how long attaching took, if its VNIC is attached now, and the attempt
    /// that failed.
    pub(in crate::attachment) fn note(
        &mut self,
        object: &VnicAttachment,
        own: &[&ObservedAttachment],
        machine: &Machine,
        times: ReadTimes,
    ) -> (Option<Duration>, Option<FailedAttempt>) {
        let ReadTimes { now, .. } = times;
        let generation = object.metadata.generation;
        self.failure.take_if(|last| last.generation != generation);
        // No list is requested of an instance that is answered 404, so nothing is known to be missing.
        if *machine == Machine::NotSeen {
            self.forget_absence();
            return (None, None);
        }
        let is_leaving = object.metadata.deletion_timestamp.is_some();
        let failed = if is_leaving { self.note_detach(own, times) } else { self.note_records(object, own) };
        // Otherwise its VNICs go because of the instance. The first lost one is attached again at once.
        let failed = failed.filter(|(_, number)| machine.is_up() && *number > 0);
        if let Some((attempt, number)) = failed {
            self.failure = Some(Failure { attempt, number, at: now, generation });
            self.attaching_since.take_if(|_| attempt == FailedAttempt::Attach);
        }
        if own.iter().any(|seen| seen.state() != AttachmentState::Detached) {
            self.forget_absence();
        } else {
            self.absent_since.get_or_insert(now);
            self.unlisted_since.get_or_insert(now);
        }
        let is_unseen = |seen: &&ObservedAttachment| {
            seen.state() == AttachmentState::Attached && seen.vnic.as_ref().is_none_or(ObservedVnic::is_unlisted)
        };
        self.unseen_reconciles = if own.iter().any(is_unseen) { self.unseen_reconciles.saturating_add(1) } else { 0 };
        let is_attached = own.iter().any(|seen| seen.vnic.is_some());
        let began = self.attaching_since.take_if(|_| is_attached);
        (began.map(|began| now.saturating_duration_since(began)), failed.map(|(attempt, _)| attempt))
    }

    /// A new record is a failed attach, or the loss of the VNIC in the status. Returns the number of those that count.
    fn note_records(&mut self, object: &VnicAttachment, own: &[&ObservedAttachment]) -> Option<(FailedAttempt, u32)> {
        let records = || own.iter().filter(|seen| seen.state() == AttachmentState::Detached);
        let before = self.records.replace(records().map(|seen| seen.attachment.id.clone()).collect())?;
        let number = u32::try_from(records().count()).unwrap_or(u32::MAX);
        let new: Vec<_> = records().filter(|seen| !before.contains(&seen.attachment.id)).collect();
        if new.is_empty() || records().count() < own.len() {
            return None;
        }
        let reported = object.status.as_ref().and_then(|status| status.vnic_id.as_ref());
        let is_lost = reported.is_some() && new.iter().any(|seen| seen.attachment.vnic_id.as_ref() == reported);
        Some(if is_lost { (FailedAttempt::Loss, number.saturating_sub(1)) } else { (FailedAttempt::Attach, number) })
    }

    /// The answer may be stale: that the VNIC is still attached counts after the time of a proof.
    fn note_detach(&mut self, own: &[&ObservedAttachment], times: ReadTimes) -> Option<(FailedAttempt, u32)> {
        let (_, at) = self.detach.as_ref().filter(|(attachment, _)| {
            own.iter().any(|seen| seen.attachment.id == *attachment && seen.state() == AttachmentState::Attached)
        })?;
        if times.requested_at.saturating_duration_since(*at) < times.proof {
            return None;
        }
        self.detach = None;
        let before = self.failure.filter(|last| last.attempt == FailedAttempt::Detach).map_or(0, |last| last.number);
        Some((FailedAttempt::Detach, before.saturating_add(1)))
    }

    /// That something is missing has to be proven again.
    pub(in crate::attachment) fn forget_absence(&mut self) {
        (self.absent_since, self.unlisted_since) = (None, None);
    }

    /// A VNIC is about to be requested. From here on only lists can show that it is missing.
    pub(in crate::attachment) const fn requested(&mut self) {
        self.absent_since = None;
    }

    /// Its attach was accepted.
    pub(in crate::attachment) fn attaching(&mut self, now: Instant) {
        self.refused = None;
        self.attaching_since.get_or_insert(now);
    }

    /// Its detach was accepted.
    pub(in crate::attachment) fn detaching(&mut self, attachment: &Ocid, now: Instant) {
        self.refused = None;
        if self.accepted_detach() != Some(attachment) {
            self.detach = Some((attachment.clone(), now));
        }
    }

    /// Several addresses were requested at once.
    pub(in crate::attachment) const fn requested_in_bulk(&mut self, generation: Option<i64>, now: Instant) {
        self.bulk = Some((now, generation));
    }
}

fn since(then: Option<Instant>, now: Instant) -> Duration {
    then.map_or(Duration::ZERO, |then| now.saturating_duration_since(then))
}
