//! What the cloud takes and does not carry out, and what is taken away again and again: told by its lists, counted, and
//! followed by a pause that grows. Every process sees the same records, so none of them counts from the beginning. Pure.
//!
//! ```text
//!   asked ─▶ ATTACHING ─▶ DETACHED                 the attach came to nothing  ╮
//!   attached, told ─────▶ DETACHED, again          the VNIC was lost again     ├─▶ pause: 1 s, 2 s, 4 s … as many as
//!   detach taken ─▶ DETACHING ─▶ ATTACHED          the detach came to nothing  ╯   there are records, losses or detaches
//! ```

use std::collections::HashMap;
use std::time::Duration;

use api::{AttachmentReason as Reason, VnicAttachment};
use backoff::Backoff;
use oci::AttachmentState;
use tokio::time::Instant;
use vcn::Ocid;

use crate::attachment::observe::observed::Seen;
use crate::attachment::report::attachment_status::StatusReason;
use crate::attachment::state::retry_state::ReadTimes;
use crate::work::Pause;

/// For so long a record that no list has any more is known: a list may be behind, or of an instance that is on its way out.
const KNOWN_FOR: Duration = Duration::from_hours(24);

/// What became of a request that was taken, or of a VNIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailedAttempt {
    /// The VNIC was not attached after all.
    Attach,
    /// The VNIC was not detached after all.
    Detach,
    /// Somebody else detached the VNIC, not for the first time.
    Loss,
}

/// A pause before the same is asked for again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemainingBackoff {
    /// After what.
    pub after: FailedAttempt,
    /// How long, and after how many of them.
    pub pause: Pause,
}

/// Of one object.
#[derive(Clone, Debug, Default)]
pub(in crate::attachment) struct FailedAttempts {
    /// Its attachments that were listed as DETACHED; nothing before the first list: how old those are is not known.
    over: Option<HashMap<Ocid, Over>>,
    /// The one that was seen attached last.
    attached: Option<Ocid>,
    /// The detach that the cloud took.
    detach: Option<Box<Detach>>,
    /// How many of them came to nothing.
    kept: u32,
    last: Option<Box<(FailedAttempt, Attempts)>>,
}

#[derive(Clone, Copy, Debug)]
struct Over {
    /// When last.
    listed: Instant,
    /// Whether it had been attached. Of those in the first list that is not known: they count.
    is_loss: bool,
}

#[derive(Clone, Debug)]
struct Detach {
    attachment: Ocid,
    taken: Instant,
    is_seen: bool,
}

/// Attempts at the same thing that led to nothing.
#[derive(Clone, Debug)]
pub(in crate::attachment) struct Attempts {
    /// How many in a row.
    pub(in crate::attachment) number: u32,
    /// When the last one was made or seen to fail.
    pub(in crate::attachment) at: Instant,
    /// Of the object: a changed spec may ask for something else.
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
    /// What is told of it. The same each time, so that nothing is written while it goes on like that.
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

    /// What it is called in metrics; a loss is counted when it is told.
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
    /// Takes note of what is listed of the object. Returns what is new; `is_up`: nothing of the instance goes with it.
    pub(in crate::attachment) fn note(
        &mut self,
        object: &VnicAttachment,
        own: &[&Seen],
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

    /// Whether a record is listed that was not, the last time.
    pub(in crate::attachment) fn has_new_record(&self, own: &[&Seen]) -> bool {
        self.fresh(own).next().is_some()
    }

    /// Its records that no list had before; none in the first one.
    fn fresh<'s>(&self, own: &[&'s Seen]) -> impl Iterator<Item = &'s Seen> {
        let is_new = |seen: &&Seen| self.over.as_ref().is_some_and(|known| !known.contains_key(&seen.attachment.id));
        records(own).filter(is_new)
    }

    /// What records are new, and how many count.
    fn note_records(&mut self, object: &VnicAttachment, own: &[&Seen], now: Instant) -> Option<(FailedAttempt, u32)> {
        let told = object.status.as_ref().and_then(|status| status.vnic_id.as_ref());
        let was_there = |seen: &Seen| {
            self.attached.as_ref() == Some(&seen.attachment.id)
                || (told.is_some() && told == seen.attachment.vnic_id.as_ref())
        };
        let fresh: Vec<(&Ocid, bool)> = self.fresh(own).map(|seen| (&seen.attachment.id, was_there(seen))).collect();
        let is_lost = fresh.iter().map(|(_, is_lost)| *is_lost).reduce(|one, other| one || other);
        let noted = self.over.get_or_insert_default();
        noted.retain(|_, over| now.saturating_duration_since(over.listed) < KNOWN_FOR);
        for seen in records(own) {
            noted.entry(seen.attachment.id.clone()).or_insert(Over { listed: now, is_loss: true }).listed = now;
        }
        for (id, is_loss) in fresh {
            noted.entry(id.clone()).and_modify(|over| over.is_loss = is_loss);
        }
        let is_loss = |seen: &&Seen| noted.get(&seen.attachment.id).is_some_and(|over| over.is_loss);
        let (all, losses) = (count(records(own)), count(records(own).filter(is_loss)));
        if let Some(live) = own.iter().find(|seen| seen.state() != AttachmentState::Detached) {
            if live.state() == AttachmentState::Attached {
                self.attached = Some(live.attachment.id.clone());
            }
            return None;
        }
        // The first one that is lost is attached again at once.
        is_lost.map(
            |lost| if lost { (FailedAttempt::Loss, losses.saturating_sub(1)) } else { (FailedAttempt::Attach, all) },
        )
    }

    /// A list may be behind: what it lacks of a detach is believed when it has been so for as long as a proof takes.
    fn note_detach(&mut self, own: &[&Seen], times: ReadTimes) -> Option<(FailedAttempt, u32)> {
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

    /// The cloud took a detach.
    pub(in crate::attachment) fn detaching(&mut self, attachment: &Ocid, now: Instant) {
        let same = |detach: &Detach| detach.attachment == *attachment;
        if !self.detach.as_deref().is_some_and(same) {
            self.detach = Some(Box::new(Detach { attachment: attachment.clone(), taken: now, is_seen: false }));
        }
    }

    /// The attachment whose detach the cloud took, as long as it may be carried out.
    pub(in crate::attachment) fn detaches(&self) -> Option<&Ocid> {
        self.detach.as_ref().map(|detach| &detach.attachment)
    }

    /// The pause that is not over yet.
    pub(in crate::attachment) fn rest(&self, now: Instant, pauses: &Backoff) -> Option<RemainingBackoff> {
        let (after, attempts) = self.last.as_deref()?;
        Some(RemainingBackoff { after: *after, pause: attempts.pause(now, pauses)? })
    }
}

/// What is listed of the object as DETACHED.
fn records<'s>(own: &[&'s Seen]) -> impl Iterator<Item = &'s Seen> {
    own.iter().copied().filter(|seen| seen.state() == AttachmentState::Detached)
}

fn count<T>(all: impl Iterator<Item = T>) -> u32 {
    u32::try_from(all.count()).unwrap_or(u32::MAX)
}
