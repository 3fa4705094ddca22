//! Requests that OCI accepts but does not carry out, and VNICs that are detached again and again. OCI's lists show them; they
//! are counted and followed by growing backoff. Every process sees the same records, so the count survives. Pure.
//!
//! ```text
//!   asked ─▶ ATTACHING ─▶ DETACHED                 the attach failed           ╮
//!   attached ───────────▶ DETACHED, again          the VNIC was lost again     ├─▶ backoff: 1 s, 2 s, 4 s … as many as
//!   detach sent ──▶ DETACHING ─▶ ATTACHED          the detach failed           ╯   there are records, losses or detaches
//! ```

use std::collections::HashMap;
use std::time::Duration;

use api::{AttachmentReason as Reason, VnicAttachment};
use backoff::Backoff;
use oci::AttachmentState;
use tokio::time::Instant;
use vcn::Ocid;

use crate::attachment::observe::observed::ObservedAttachment;
use crate::attachment::report::attachment_status::StatusReason;
use crate::attachment::state::retry_state::ReadTimes;
use crate::work::Pause;

/// How long a record that no list has any more is remembered: a list may be stale, or of an instance that is going.
const KNOWN_FOR: Duration = Duration::from_hours(24);

/// The outcome of an accepted request, or of a VNIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailedAttempt {
    /// The VNIC was not attached after all.
    Attach,
    /// The VNIC was not detached after all.
    Detach,
    /// Another program detached the VNIC, not for the first time.
    Loss,
}

/// The backoff before the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemainingBackoff {
    /// The failure.
    pub after: FailedAttempt,
    /// Its length, and the number of failures.
    pub pause: Pause,
}

/// The attempts of one object.
#[derive(Clone, Debug, Default)]
pub(in crate::attachment) struct FailedAttempts {
    /// Its attachments that were listed as DETACHED; `None` before the first list, because their age is unknown.
    over: Option<HashMap<Ocid, EndedAttempt>>,
    /// The one that was last seen attached.
    attached: Option<Ocid>,
    /// The detach that OCI accepted.
    detach: Option<Box<Detach>>,
    /// How many of them failed.
    kept: u32,
    last: Option<Box<(FailedAttempt, Attempts)>>,
}

#[derive(Clone, Copy, Debug)]
struct EndedAttempt {
    /// When it was last listed.
    listed: Instant,
    /// Whether it had been attached. Records of the first list count too, because that is unknown.
    is_loss: bool,
}

#[derive(Clone, Debug)]
struct Detach {
    attachment: Ocid,
    taken: Instant,
    is_seen: bool,
}

/// Failed attempts at one thing.
#[derive(Clone, Debug)]
pub(in crate::attachment) struct Attempts {
    /// How many in a row.
    pub(in crate::attachment) number: u32,
    /// When the last one was made or seen to fail.
    pub(in crate::attachment) at: Instant,
    /// The object's generation: a changed spec may request something else.
    pub(in crate::attachment) generation: Option<i64>,
}

impl Attempts {
    /// The rest of the backoff, without jitter: the queue adds it. `None` once it is over.
    pub(in crate::attachment) fn pause(&self, now: Instant, pauses: &Backoff) -> Option<Pause> {
        let left = pauses.delay(self.number, 1.0).saturating_sub(now.saturating_duration_since(self.at));
        (!left.is_zero()).then_some(Pause { left, number: self.number })
    }
}

impl FailedAttempt {
    /// The message. Constant, so that nothing is written while it continues.
    #[must_use]
    pub fn said(self) -> StatusReason {
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
    #[must_use]
    pub const fn kind(self) -> Option<&'static str> {
        match self {
            Self::Attach => Some("attach"),
            Self::Detach => Some("detach"),
            Self::Loss => None,
        }
    }
}

impl FailedAttempts {
    /// Records what is listed of the object. Returns what is new; `is_up`: no VNIC goes because of the instance.
    pub(in crate::attachment) fn note(
        &mut self,
        object: &VnicAttachment,
        own: &[&ObservedAttachment],
        is_up: bool,
        times: ReadTimes,
    ) -> Option<FailedAttempt> {
        let generation = object.metadata.generation;
        self.last.take_if(|last| last.1.generation != generation);
        let is_leaving = object.metadata.deletion_timestamp.is_some();
        let noted = if is_leaving { self.note_detach(own, times) } else { self.note_records(object, own, times.now) };
        let (after, number) = noted.filter(|_| is_up)?;
        self.last = (number > 0).then(|| Box::new((after, Attempts { number, at: times.now, generation })));
        self.last.as_ref().map(|last| last.0)
    }

    /// Whether a new record was listed the last time.
    pub(in crate::attachment) fn has_new_record(&self, own: &[&ObservedAttachment]) -> bool {
        self.fresh(own).next().is_some()
    }

    /// Its records that no earlier list had; empty for the first list.
    fn fresh<'s>(&self, own: &[&'s ObservedAttachment]) -> impl Iterator<Item = &'s ObservedAttachment> {
        let is_new = |seen: &&ObservedAttachment| {
            self.over.as_ref().is_some_and(|known| !known.contains_key(&seen.attachment.id))
        };
        records(own).filter(is_new)
    }

    /// The new records, and how many count.
    fn note_records(
        &mut self,
        object: &VnicAttachment,
        own: &[&ObservedAttachment],
        now: Instant,
    ) -> Option<(FailedAttempt, u32)> {
        let told = object.status.as_ref().and_then(|status| status.vnic_id.as_ref());
        let was_there = |seen: &ObservedAttachment| {
            self.attached.as_ref() == Some(&seen.attachment.id)
                || (told.is_some() && told == seen.attachment.vnic_id.as_ref())
        };
        let fresh: Vec<(&Ocid, bool)> = self.fresh(own).map(|seen| (&seen.attachment.id, was_there(seen))).collect();
        let is_lost = fresh.iter().map(|(_, is_lost)| *is_lost).reduce(|one, other| one || other);
        let noted = self.over.get_or_insert_default();
        noted.retain(|_, over| now.saturating_duration_since(over.listed) < KNOWN_FOR);
        for seen in records(own) {
            noted.entry(seen.attachment.id.clone()).or_insert(EndedAttempt { listed: now, is_loss: true }).listed = now;
        }
        for (id, is_loss) in fresh {
            noted.entry(id.clone()).and_modify(|over| over.is_loss = is_loss);
        }
        let is_loss = |seen: &&ObservedAttachment| noted.get(&seen.attachment.id).is_some_and(|over| over.is_loss);
        let (all, losses) = (count(records(own)), count(records(own).filter(is_loss)));
        if let Some(live) = own.iter().find(|seen| seen.state() != AttachmentState::Detached) {
            if live.state() == AttachmentState::Attached {
                self.attached = Some(live.attachment.id.clone());
            }
            return None;
        }
        // The first lost one is attached again at once.
        is_lost.map(
            |lost| if lost { (FailedAttempt::Loss, losses.saturating_sub(1)) } else { (FailedAttempt::Attach, all) },
        )
    }

    /// A list may be stale: the absence of a detach counts after the time of a proof.
    fn note_detach(&mut self, own: &[&ObservedAttachment], times: ReadTimes) -> Option<(FailedAttempt, u32)> {
        let detach = self.detach.as_mut()?;
        let listed = own.iter().find(|seen| seen.attachment.id == detach.attachment).map(|seen| seen.state());
        match listed {
            Some(AttachmentState::Detaching) => {
                detach.is_seen = true;
                return None;
            }
            Some(AttachmentState::Attached) => {}
            _ => return None,
        }
        if !detach.is_seen && times.asked.saturating_duration_since(detach.taken) < times.proof {
            return None;
        }
        self.detach = None;
        self.kept = self.kept.saturating_add(1);
        Some((FailedAttempt::Detach, self.kept))
    }

    /// OCI accepted a detach.
    pub(in crate::attachment) fn detaching(&mut self, attachment: &Ocid, now: Instant) {
        let same = |detach: &Detach| detach.attachment == *attachment;
        if !self.detach.as_deref().is_some_and(same) {
            self.detach = Some(Box::new(Detach { attachment: attachment.clone(), taken: now, is_seen: false }));
        }
    }

    /// The attachment with an accepted detach, while it may be carried out.
    pub(in crate::attachment) fn detaches(&self) -> Option<&Ocid> {
        self.detach.as_ref().map(|detach| &detach.attachment)
    }

    /// The remaining backoff.
    pub(in crate::attachment) fn rest(&self, now: Instant, pauses: &Backoff) -> Option<RemainingBackoff> {
        let (after, attempts) = self.last.as_deref()?;
        Some(RemainingBackoff { after: *after, pause: attempts.pause(now, pauses)? })
    }
}

/// The object's attachments in state DETACHED.
fn records<'s>(own: &[&'s ObservedAttachment]) -> impl Iterator<Item = &'s ObservedAttachment> {
    own.iter().copied().filter(|seen| seen.state() == AttachmentState::Detached)
}

fn count<T>(all: impl Iterator<Item = T>) -> u32 {
    u32::try_from(all.count()).unwrap_or(u32::MAX)
}
