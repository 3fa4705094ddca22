//! What one process remembers of one object between two reconciles: since when something is missing, what was refused, what is
//! not carried out yet. Losing it costs a call or some seconds, never a VNIC: the object's status and OCI's lists are the memory.

use std::collections::BTreeMap;
use std::time::Duration;

use api::{VnicAttachment, VnicAttachmentStatus};
use backoff::Backoff;
use oci::AttachmentState;
use tokio::time::Instant;
use vcn::{Family, Ocid};

use crate::attachment::observe::forgotten::{EvidenceGap, EvidenceSummary};
use crate::attachment::observe::observed::{Listed, Machine, ObservedAttachment, ObservedVnic};
use crate::attachment::report::attachment_status::StatusReason;
use crate::attachment::state::failed_attempts::{Attempts, FailedAttempt, FailedAttempts};
use crate::work::Pause;

/// For so long the status that was written counts rather than the watch, which may be stale.
const WATCH_BEHIND: Duration = Duration::from_secs(10);
/// Addresses that were requested in bulk and have not come in so many reconciles will not come.
const BULK_LOOKS: u32 = 5;

/// When something was read: what a list lacks means something only together with these times.
#[derive(Clone, Copy, Debug)]
pub(in crate::attachment) struct ReadTimes {
    /// When it was requested: what it lacks may have come since.
    pub(in crate::attachment) asked: Instant,
    /// When the answer was there.
    pub(in crate::attachment) now: Instant,
    /// For how long a VNIC must be missing from lists until it is certain that there is none.
    pub(in crate::attachment) proof: Duration,
}

/// A refusal, whatever for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its place among the refusals of the instance.
    pub turn: u64,
    /// The refusal, or the last one that was an answer.
    pub said: StatusReason,
}

/// The retry state of one object.
#[derive(Clone, Debug, Default)]
pub struct RetryState {
    /// How many tokens of VNICs OCI refused for so long that their VNICs are certainly gone. Nothing else may count here: another
    /// process, which has not seen it, must derive the same token.
    pub(in crate::attachment) spent_tokens: u32,
    /// Since when OCI refuses the VNIC's token while no list shows its VNIC.
    spent_since: Option<Instant>,
    /// How many tokens of addresses OCI found spent.
    pub(in crate::attachment) spent_address_tokens: u32,
    /// The generation of the spec that the VNIC last matched, its addresses apart.
    pub(in crate::attachment) as_asked: Option<i64>,
    /// The attach or detach that was refused or failed last, since one was accepted.
    pub(in crate::attachment) refused: Option<Refused>,
    pub(in crate::attachment) backlog: FailedAttempts,
    /// Of the object, at the last reconcile.
    generation: Option<i64>,
    /// Changes of the VNIC and releases of addresses that OCI accepted and has not applied, by VNIC or address.
    pending: BTreeMap<Ocid, Attempts>,
    absent_since: Option<Instant>,
    unlisted_since: Option<Instant>,
    /// In how many reconciles in a row its VNIC was listed as attached, and it or its addresses could not be read.
    pub(in crate::attachment) unseen_looks: u32,
    /// Since when there is no doubt that the instance is forgotten, and how many compartments were listed; or the doubt.
    forgotten: Option<Result<(Instant, usize), EvidenceGap>>,
    /// Whether the last reconcile got no answer to that.
    unanswered: bool,
    asked: Option<Instant>,
    written: Option<(Instant, VnicAttachmentStatus)>,
    /// Addresses requested in bulk: how many there were then, and how many reconciles ago.
    bulks: BTreeMap<Family, (usize, u32)>,
    /// Whether a bulk request was refused.
    bulk_refused: bool,
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

    /// The rest of the backoff before a VNIC is changed again, or an address released again.
    pub(in crate::attachment) fn pending(&self, of: &Ocid, now: Instant, pauses: &Backoff) -> Option<Pause> {
        self.pending.get(of).filter(|last| last.generation == self.generation)?.pause(now, pauses)
    }

    /// Where the instance is answered 404: what supports that it is gone, or the doubt.
    pub(in crate::attachment) fn forgotten(&self, now: Instant) -> Result<EvidenceSummary, EvidenceGap> {
        match self.forgotten {
            Some(known) if !self.unanswered => known.map(|(since, compartments)| EvidenceSummary {
                since: now.saturating_duration_since(since),
                compartments,
            }),
            _ => Err(EvidenceGap::NotLooked),
        }
    }

    /// Whether addresses of this family that were requested in bulk may still come.
    pub(in crate::attachment) fn is_coming(&self, family: Family) -> bool {
        self.bulks.get(&family).is_some_and(|(_, looks)| *looks < BULK_LOOKS)
    }

    /// Whether addresses requested in bulk did not come, or were refused: one by one, some may be granted.
    pub(in crate::attachment) fn is_bulk_failed(&self) -> bool {
        self.bulk_refused || self.bulks.values().any(|(_, looks)| *looks >= BULK_LOOKS)
    }

    /// The status that was written last, as long as the watch may be stale.
    pub(in crate::attachment) fn written(&self, now: Instant) -> Option<&VnicAttachmentStatus> {
        let (when, status) = self.written.as_ref()?;
        (now.saturating_duration_since(*when) < WATCH_BEHIND).then_some(status)
    }
}

/// What happened to the object.
impl RetryState {
    /// Takes note of what was read of the object. Returns how long attaching took, if its VNIC is attached now, and the attempt
    /// that failed. A token that is refused for as long as the proof takes is spent: its VNIC would have been listed.
    pub(in crate::attachment) fn note(
        &mut self,
        object: &VnicAttachment,
        own: &[&ObservedAttachment],
        machine: &Machine,
        times: ReadTimes,
    ) -> (Option<Duration>, Option<FailedAttempt>) {
        let ReadTimes { asked, now, proof } = times;
        // No list is requested of an instance that is answered 404, so nothing is known to be missing.
        let is_unasked = *machine == Machine::NotSeen;
        if !is_unasked {
            (self.forgotten, self.unanswered) = (None, false);
        }
        self.generation = object.metadata.generation;
        self.written.take_if(|(when, _)| now.saturating_duration_since(*when) >= WATCH_BEHIND);
        if self.backlog.has_new_record(own) {
            // That VNIC explains the refusal of the token, and counts as gone from here on.
            self.spent_since = None;
        }
        let setback = if is_unasked { None } else { self.backlog.note(object, own, machine.is_up(), times) };
        if is_unasked || own.iter().any(|seen| seen.state() != AttachmentState::Detached) {
            self.forget_absence();
        } else {
            if self.spent_since.take_if(|since| asked.saturating_duration_since(*since) >= proof).is_some() {
                self.spent_tokens = self.spent_tokens.saturating_add(1);
            }
            self.absent_since.get_or_insert(now);
            self.unlisted_since.get_or_insert(now);
        }
        let is_unseen = |seen: &&ObservedAttachment| {
            seen.state() == AttachmentState::Attached && seen.vnic.as_ref().is_none_or(ObservedVnic::is_unlisted)
        };
        self.unseen_looks = if own.iter().any(is_unseen) { self.unseen_looks.saturating_add(1) } else { 0 };
        let vnic = own.iter().find_map(|seen| seen.vnic.as_ref());
        (vnic.and_then(|vnic| self.note_vnic(vnic, now)), setback)
    }

    fn note_vnic(&mut self, vnic: &ObservedVnic, now: Instant) -> Option<Duration> {
        self.pending.retain(|of, _| *of == vnic.vnic.value.id || vnic.may_hold(of));
        for (family, (before, looks)) in &mut self.bulks {
            let Listed::Known(all) = vnic.addresses(*family) else { continue };
            *looks = if all.len() == *before { *looks + 1 } else { 0 };
            *before = all.len();
        }
        self.asked.take().map(|asked| now.saturating_duration_since(asked))
    }

    /// That something is missing has to be proven again.
    pub(in crate::attachment) fn forget_absence(&mut self) {
        (self.absent_since, self.unlisted_since, self.spent_since) = (None, None, None);
    }

    /// The instance is answered 404, and this supports that it is gone, or speaks against it.
    pub(in crate::attachment) fn judged(&mut self, judged: Result<usize, EvidenceGap>, now: Instant) {
        let since = match self.forgotten {
            Some(Ok((since, _))) => since,
            _ => now,
        };
        self.forgotten = Some(judged.map(|compartments| (since, compartments)));
        self.unanswered = false;
    }

    /// There was no answer to that: what is known stays, and this reconcile adds nothing.
    pub(in crate::attachment) const fn unanswered(&mut self) {
        self.unanswered = true;
    }

    /// A VNIC is about to be requested. From here on only lists can show that it is missing.
    pub(in crate::attachment) fn asked(&mut self, now: Instant) {
        self.asked.get_or_insert(now);
        self.absent_since = None;
    }

    /// The VNIC is not being attached: the time until it is attached begins with the next request.
    pub(in crate::attachment) const fn declined(&mut self) {
        self.asked = None;
    }

    /// Its attach was accepted.
    pub(in crate::attachment) fn attaching(&mut self) {
        (self.refused, self.spent_since) = (None, None);
    }

    /// Its detach was accepted.
    pub(in crate::attachment) fn detaching(&mut self, attachment: &Ocid, now: Instant) {
        self.refused = None;
        self.backlog.detaching(attachment, now);
    }

    /// OCI accepted a change of its VNIC, or the release of an address.
    pub(in crate::attachment) fn took(&mut self, of: &Ocid, now: Instant) {
        let before =
            self.pending.get(of).filter(|last| last.generation == self.generation).map_or(0, |last| last.number);
        let last = Attempts { number: before.saturating_add(1), at: now, generation: self.generation };
        self.pending.insert(of.clone(), last);
    }

    /// Several addresses were requested at once.
    pub(in crate::attachment) fn asked_for_addresses(&mut self, family: Family) {
        self.bulks.entry(family).or_insert((usize::MAX, 0));
    }

    /// Such a request was refused.
    pub(in crate::attachment) const fn refused_addresses(&mut self) {
        self.bulk_refused = true;
    }

    /// Its VNIC matches this generation, its addresses apart.
    pub(in crate::attachment) fn is_as_asked(&mut self, generation: Option<i64>, vnic: Option<&Ocid>) {
        self.as_asked = generation;
        self.pending.retain(|of, _| Some(of) != vnic);
    }

    /// It has the addresses that were requested.
    pub(in crate::attachment) fn has_addresses(&mut self) {
        self.bulks.clear();
        self.bulk_refused = false;
    }

    /// OCI refused the token of its VNIC.
    pub(in crate::attachment) fn spent(&mut self, now: Instant) {
        self.spent_since.get_or_insert(now);
    }

    /// A status was written.
    pub(in crate::attachment) fn wrote(&mut self, status: VnicAttachmentStatus, now: Instant) {
        self.written = Some((now, status));
    }
}

fn since(then: Option<Instant>, now: Instant) -> Duration {
    then.map_or(Duration::ZERO, |then| now.saturating_duration_since(then))
}

#[cfg(test)]
mod tests;
