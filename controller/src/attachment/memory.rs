//! What one process remembers of an instance between two looks. Losing it costs a call or some seconds, nothing else.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use api::{AttachmentReason, VnicAttachment, VnicAttachmentStatus};
use kube::ResourceExt;
use oci::AttachmentState;
use patience::Backoff;
use tokio::time::Instant;
use vcn::{Family, Ocid};

use super::apply::Outcome;
use super::forgotten::{Doubt, Known};
use super::mark::Uid;
use super::moments::Moments;
use super::observed::{Listed, Machine, Observed, Seen, SeenVnic};
use super::plan::{Plan, Refused, Remembered};
use super::refusal::is_no_answer;
use super::setback::{Setback, Setbacks};
use super::step::{Action, Step};
use super::taken::Taken;
use super::verdict::Said;
use crate::work::Pause;

/// For so long the status that was written is believed rather than the watch, which may be behind.
const WATCH_BEHIND: Duration = Duration::from_secs(10);
/// Addresses that were asked for at once and have not come in so many looks will not come.
const BULK_LOOKS: u32 = 5;

/// What a list tells that was not known.
#[derive(Debug, Default)]
pub(super) struct News {
    /// How long attaching took for those that are attached now.
    pub(super) took: Vec<Duration>,
    /// What came to nothing, by the object's name.
    pub(super) setbacks: Vec<(String, Setback)>,
}

/// An instance.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Boxed: a table of few has more places than objects, and these are large.
    objects: HashMap<Uid, Box<Object>>,
    /// Attachments that are others'.
    pub(super) foreign: HashSet<Ocid>,
    /// Why nothing could be read at the last look.
    pub(super) unreadable: Option<AttachmentReason>,
    /// Objects of which what was known was old when it was last acted upon.
    pub(super) stale: BTreeSet<String>,
    /// Addresses whose release was answered 404, as long as they are to be released.
    pub(super) unreleased: BTreeSet<Ocid>,
    /// How many attaches and detaches were refused.
    refusals: u64,
    /// In how many looks in turn something had to wait for the pod network.
    held: u32,
    /// Why the pod network could not be read when it was asked for last.
    pub(super) unread_pod_network: Option<String>,
    /// Whether something waited at the last look for an answer about it.
    pub(super) unanswered_pod_network: bool,
    /// How many VNICs were ours and nobody's at the last look.
    pub(super) unclaimed: usize,
}

#[derive(Debug, Default)]
struct Object {
    spent_tokens: u32,
    /// Since when the cloud refuses the token of the VNIC, and no VNIC of it was listed.
    spent_since: Option<Instant>,
    spent_address_tokens: u32,
    as_asked: Option<i64>,
    refused: Option<Refused>,
    setbacks: Setbacks,
    /// Of the object, as it was last looked at.
    generation: Option<i64>,
    taken: Taken,
    absent_since: Option<Instant>,
    unlisted_since: Option<Instant>,
    unseen_looks: u32,
    /// Since when there was no doubt that the instance is forgotten, and how many compartments were listed; or the doubt.
    forgotten: Option<Result<(Instant, usize), Doubt>>,
    /// Whether the last look got no answer to that.
    unanswered: bool,
    asked: Option<Instant>,
    written: Option<(Instant, VnicAttachmentStatus)>,
    /// Addresses asked for at once: how many there were then, and how many looks ago.
    bulks: BTreeMap<Family, (usize, u32)>,
    /// Whether that was refused.
    bulk_refused: bool,
}

impl Memory {
    /// All of it, to look with. What is counted of all instances stays here meanwhile.
    pub(super) fn lend(&mut self) -> Self {
        let counted = Self { unclaimed: self.unclaimed, ..Self::default() };
        mem::replace(self, counted)
    }

    /// Takes note of what was read. A token that is refused for as long as the proof takes is spent: what was made by it would
    /// have been listed.
    pub(super) fn note(&mut self, all: &[Arc<VnicAttachment>], observed: &Observed, moments: Moments) -> News {
        let Moments { asked, now, proof } = moments;
        let uids: HashSet<Uid> = all.iter().filter_map(|object| object.uid()).collect();
        self.objects.retain(|uid, _| uids.contains(uid));
        let listed: HashSet<&Ocid> = observed.attachments.iter().map(|seen| &seen.attachment.id).collect();
        self.foreign.retain(|id| listed.contains(id));
        let others = observed
            .attachments
            .iter()
            .filter(|seen| seen.owner == super::observed::Owner::Foreign && seen.state() == AttachmentState::Attached);
        self.foreign.extend(others.map(|seen| seen.attachment.id.clone()));
        let mut news = News::default();
        for known in all {
            let uid = known.uid().unwrap_or_default();
            let object = self.objects.entry(uid.clone()).or_default();
            if observed.machine != Machine::NotSeen {
                (object.forgotten, object.unanswered) = (None, false);
            }
            object.generation = known.metadata.generation;
            object.written.take_if(|(when, _)| now.saturating_duration_since(*when) >= WATCH_BEHIND);
            let own: Vec<&Seen> = observed.attachments.iter().filter(|seen| seen.is_for(&uid)).collect();
            // Of an instance that is answered 404 no list is asked for, so none has told that anything is missing.
            let is_unasked = observed.machine == Machine::NotSeen;
            if object.setbacks.has_new_record(&own) {
                // The refusal is explained: it was of that one, which counts as gone from here on.
                object.spent_since = None;
            }
            let setback = match is_unasked {
                true => None,
                false => object.setbacks.note(known, (&own, observed.machine.is_up()), moments),
            };
            if let Some(setback) = setback {
                news.setbacks.push((known.name_any(), setback));
            }
            if is_unasked || own.iter().any(|seen| seen.state() != AttachmentState::Detached) {
                (object.absent_since, object.unlisted_since, object.spent_since) = (None, None, None);
            } else {
                if object.spent_since.take_if(|since| asked.saturating_duration_since(*since) >= proof).is_some() {
                    object.spent_tokens = object.spent_tokens.saturating_add(1);
                }
                object.absent_since.get_or_insert(now);
                object.unlisted_since.get_or_insert(now);
            }
            let is_unseen = |seen: &&Seen| {
                seen.state() == AttachmentState::Attached && seen.vnic.as_ref().is_none_or(SeenVnic::is_unlisted)
            };
            object.unseen_looks = if own.iter().any(is_unseen) { object.unseen_looks.saturating_add(1) } else { 0 };
            if let Some(vnic) = own.iter().find_map(|seen| seen.vnic.as_ref()) {
                news.took.extend(object.asked.take().map(|asked| now.saturating_duration_since(asked)));
                object.taken.keep(|of| *of == vnic.vnic.value.id || vnic.may_hold(of));
                for (family, (before, looks)) in &mut object.bulks {
                    let Listed::Known(all) = vnic.addresses(*family) else { continue };
                    let count = all.len();
                    *looks = if count == *before { *looks + 1 } else { 0 };
                    *before = count;
                }
            }
            if let Some(setback) = setback {
                self.passes_on(&uid, setback);
            }
        }
        news
    }

    /// What it asked for came to nothing: it is others' turn.
    fn passes_on(&mut self, uid: &str, setback: Setback) {
        if setback != Setback::Loss {
            self.refused(uid, setback.said());
            self.declined(uid);
        }
    }

    /// Whether something has to wait for the pod network. Returns for how long, if so. Whole: the queue spreads it.
    pub(super) fn held(&mut self, is_held: bool, pauses: &Backoff) -> Option<Pause> {
        self.held = if is_held { self.held.saturating_add(1) } else { 0 };
        is_held.then(|| Pause { left: pauses.pause(self.held, 1.0), number: self.held })
    }

    /// Whether something waits for an answer about the pod network, and did so at the last look.
    pub(super) fn is_unanswered_again(&mut self, planned: &Plan) -> bool {
        let is_unanswered =
            planned.verdicts.values().any(|verdict| verdict.attached.reason == AttachmentReason::PodNetworkUnanswered);
        mem::replace(&mut self.unanswered_pod_network, is_unanswered) && is_unanswered
    }

    /// Nothing could be read: that something is missing is to be proven anew.
    pub(super) fn forget_absences(&mut self) {
        for object in self.objects.values_mut() {
            (object.absent_since, object.unlisted_since, object.spent_since) = (None, None, None);
        }
    }

    /// For the planner: what lasts, until this moment.
    pub(super) fn remembered(&self, now: Instant, pauses: &Backoff) -> HashMap<Uid, Remembered> {
        let since = |then: Option<Instant>| then.map_or(Duration::ZERO, |then| now.saturating_duration_since(then));
        let of = |object: &Object| Remembered {
            spent_tokens: object.spent_tokens,
            spent_address_tokens: object.spent_address_tokens,
            as_asked: object.as_asked,
            refused: object.refused.clone(),
            rest: object.setbacks.rest(now, pauses),
            taken: object.taken.rests(object.generation, now, pauses),
            detaches: object.setbacks.detaches().cloned(),
            unseen_looks: object.unseen_looks,
            forgotten: match object.forgotten {
                _ if object.unanswered => Err(Doubt::NotLooked),
                Some(Ok((since, compartments))) => {
                    Ok(Known { since: now.saturating_duration_since(since), compartments })
                }
                Some(Err(doubt)) => Err(doubt),
                None => Err(Doubt::NotLooked),
            },
            absent_for: since(object.absent_since),
            unlisted_for: since(object.unlisted_since),
            coming: object
                .bulks
                .iter()
                .filter(|(_, (_, looks))| *looks < BULK_LOOKS)
                .map(|(family, _)| *family)
                .collect(),
            bulk_failed: object.bulk_refused || object.bulks.values().any(|(_, looks)| *looks >= BULK_LOOKS),
        };
        self.objects.iter().map(|(uid, object)| (uid.clone(), of(object))).collect()
    }

    /// The instance is answered 404, and this speaks for its end or against it.
    pub(super) fn judged(&mut self, uid: &str, judged: Result<usize, Doubt>, now: Instant) {
        let object = self.objects.entry(uid.to_owned()).or_default();
        let since = |before| match before {
            Some(Ok((since, _))) => since,
            _ => now,
        };
        object.forgotten = Some(judged.map(|compartments| (since(object.forgotten), compartments)));
        object.unanswered = false;
    }

    /// There was no answer to that: what is known of it stays, and nothing new comes of it at this look.
    pub(super) fn unanswered(&mut self, uid: &str) {
        self.objects.entry(uid.to_owned()).or_default().unanswered = true;
    }

    /// A VNIC was asked for.
    pub(super) fn asked(&mut self, uid: &str, now: Instant) {
        let object = self.objects.entry(uid.to_owned()).or_default();
        object.asked.get_or_insert(now);
        // From here on it is a matter of the cloud's list again.
        object.absent_since = None;
    }

    /// The VNIC is not being made: the time until it is there begins with the next request.
    pub(super) fn declined(&mut self, uid: &str) {
        if let Some(object) = self.objects.get_mut(uid) {
            object.asked = None;
        }
    }

    /// Its attach or detach was refused: it is others' turn. No answer is not told in place of one.
    pub(super) fn refused(&mut self, uid: &str, said: Said) {
        self.refusals = self.refusals.saturating_add(1);
        let object = self.objects.entry(uid.to_owned()).or_default();
        // As `is_worth_telling` has it: in the next turn of another's, the object says what it said in this one.
        let is_told_on =
            |before: &Said| !is_no_answer(before.reason) && before.reason != AttachmentReason::InstanceBusy;
        let before = object.refused.take().map(|refused| refused.said).filter(is_told_on);
        let said = before.filter(|_| is_no_answer(said.reason)).unwrap_or(said);
        object.refused = Some(Refused { turn: self.refusals, said });
    }

    /// Its attach was accepted.
    pub(super) fn attaching(&mut self, uid: &str) {
        let object = self.objects.entry(uid.to_owned()).or_default();
        (object.refused, object.spent_since) = (None, None);
    }

    /// Its detach was.
    pub(super) fn detaching(&mut self, uid: &str, attachment: &Ocid, now: Instant) {
        let object = self.objects.entry(uid.to_owned()).or_default();
        object.refused = None;
        object.setbacks.detaching(attachment, now);
    }

    /// The attachments whose detach was accepted, as long as it may be carried out.
    pub(super) fn detaches(&self) -> BTreeSet<Ocid> {
        self.objects.values().filter_map(|object| object.setbacks.detaches().cloned()).collect()
    }

    /// The cloud took a change of its VNIC, or the release of an address.
    pub(super) fn took(&mut self, uid: &str, of: &Ocid, now: Instant) {
        let object = self.objects.entry(uid.to_owned()).or_default();
        object.taken.took(of, object.generation, now);
    }

    /// What a plan that was carried out tells of releases.
    pub(super) fn released(&mut self, planned: &Plan, outcome: &Outcome) {
        let is_open = |id: &Ocid| {
            let is = |step: &Step| matches!(&step.action, Action::DeleteAddress { id: own, .. } if own == id);
            planned.steps.iter().any(is) && !outcome.done.iter().any(is)
        };
        self.unreleased.retain(is_open);
        self.unreleased.extend(outcome.unreleased.iter().cloned());
    }

    /// Several addresses were asked for.
    pub(super) fn asked_for_addresses(&mut self, uid: &str, family: Family) {
        self.objects.entry(uid.to_owned()).or_default().bulks.entry(family).or_insert((usize::MAX, 0));
    }

    /// Several were refused.
    pub(super) fn refused_addresses(&mut self, uid: &str) {
        self.objects.entry(uid.to_owned()).or_default().bulk_refused = true;
    }

    /// Its VNIC is as this generation asks, but maybe for its addresses.
    pub(super) fn is_as_asked(&mut self, uid: &str, generation: Option<i64>, vnic: Option<&Ocid>) {
        if let Some(object) = self.objects.get_mut(uid) {
            object.as_asked = generation;
            object.taken.keep(|of| Some(of) != vnic);
        }
    }

    /// It has the addresses that were asked for.
    pub(super) fn has_addresses(&mut self, uid: &str) {
        if let Some(object) = self.objects.get_mut(uid) {
            object.bulks.clear();
            object.bulk_refused = false;
        }
    }

    /// The cloud refused the token of a VNIC.
    pub(super) fn spent(&mut self, uid: &str, now: Instant) {
        self.objects.entry(uid.to_owned()).or_default().spent_since.get_or_insert(now);
    }

    /// The cloud found the token of an address spent.
    pub(super) fn spent_address(&mut self, uid: &str) {
        let object = self.objects.entry(uid.to_owned()).or_default();
        object.spent_address_tokens = object.spent_address_tokens.saturating_add(1);
    }

    /// A status was written.
    pub(super) fn wrote(&mut self, uid: &str, status: VnicAttachmentStatus, now: Instant) {
        self.objects.entry(uid.to_owned()).or_default().written = Some((now, status));
    }

    /// The status that was written last, as long as the watch may be behind.
    pub(super) fn written(&self, uid: &str, now: Instant) -> Option<&VnicAttachmentStatus> {
        let (when, status) = self.objects.get(uid)?.written.as_ref()?;
        (now.saturating_duration_since(*when) < WATCH_BEHIND).then_some(status)
    }
}
