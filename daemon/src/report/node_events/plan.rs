//! Which Event is due, computed from what was reported and the conditions now. Not every change gets an Event, but the last Event
//! about a condition is true. Pure; the time is a parameter.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use backoff::TokenBucket;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::facts::condition::{Condition, Reason};

#[cfg(test)]
mod tests;

/// A condition without its severity and message.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct ConditionKey {
    pub(super) reason: Reason,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) subject: Option<String>,
}

/// The last Event about a condition that is not reported as cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReportedEvent {
    pub(super) blocking: bool,
    /// In milliseconds since 1970.
    pub(super) reported_unix_millis: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Transition {
    /// The condition is raised, and `others` with its reason are not reported.
    Raised { condition: Condition, others: usize },
    /// The condition is cleared; `pods_start`: it was blocking, and no other one is.
    Cleared { key: ConditionKey, before: ReportedEvent, pods_start: bool },
}

/// What was reported, the conditions now, and the rate limit.
#[derive(Debug)]
pub(super) struct Plan {
    reported: BTreeMap<ConditionKey, ReportedEvent>,
    current: BTreeMap<ConditionKey, Condition>,
    /// Since when both differ.
    differing: BTreeMap<ConditionKey, Instant>,
    /// When conditions were last reported as raised, with their severity. The rate limit bounds it.
    raised: BTreeMap<(ConditionKey, bool), Instant>,
    limit: TokenBucket,
}

/// A condition that is raised again gets an Event only after this time.
const QUIET: Duration = Duration::from_mins(10);
/// Conditions with one reason that get their own Event; the last one has the number of the others.
const PER_REASON: usize = 4;
/// Events of a node at once, and per second after that: 20 an hour. An API server keeps an Event for an hour.
const BURST: f64 = 20.0;
const PER_SECOND: f64 = 20.0 / 3600.0;
/// The next check while an Event is due and not allowed yet.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);

impl Plan {
    pub(super) fn new(reported: BTreeMap<ConditionKey, ReportedEvent>, now: Instant) -> Self {
        Self {
            reported,
            current: BTreeMap::new(),
            differing: BTreeMap::new(),
            raised: BTreeMap::new(),
            limit: TokenBucket::new(BURST, PER_SECOND, now.into_std()),
        }
    }

    pub(super) const fn reported(&self) -> &BTreeMap<ConditionKey, ReportedEvent> {
        &self.reported
    }

    /// Takes in the conditions. Returns how many transitions will have no Event: they lasted for `hold` and are over.
    pub(super) fn note(&mut self, conditions: &[Condition], hold: Duration, now: Instant) -> usize {
        self.raised.retain(|_, at| now.saturating_duration_since(*at) < QUIET);
        self.current.clear();
        // A start is not a transition. Of two with one key the worst comes first.
        for condition in conditions.iter().filter(|condition| condition.reason != Reason::Starting) {
            self.current.entry(ConditionKey::of(condition)).or_insert_with(|| condition.clone());
        }
        let mut before = std::mem::take(&mut self.differing);
        for key in self.reported.keys().chain(self.current.keys()) {
            let reported = self.reported.get(key).map(|reported| reported.blocking);
            if reported != self.current.get(key).map(Condition::blocks) {
                let since = before.remove(key).unwrap_or(now);
                self.differing.entry(key.clone()).or_insert(since);
            }
        }
        before.values().filter(|since| now.saturating_duration_since(**since) >= hold).count()
    }

    /// The next Event about a difference that has lasted for `hold`, or that was final when it came: blocking conditions first, then reasons without an Event.
    pub(super) fn due(&mut self, hold: Duration, now: Instant) -> Option<Transition> {
        if !self.limit.has_token(now.into_std()) {
            return None;
        }
        let is_held = |key: &ConditionKey, since: &Instant| now.saturating_duration_since(*since) >= key.hold(hold);
        let mut keys: Vec<&ConditionKey> =
            self.differing.iter().filter(|(key, since)| is_held(key, since)).map(|(key, _)| key).collect();
        keys.sort_by_key(|key| (Reverse(self.current.get(key).is_some_and(Condition::blocks)), self.count(key.reason)));
        keys.into_iter().find_map(|key| self.transition(key))
    }

    /// When to check again if nothing happens before.
    pub(super) fn next(&self, hold: Duration, now: Instant) -> Option<Instant> {
        let held = self.differing.iter().map(|(key, since)| *since + key.hold(hold)).filter(|held| *held > now);
        held.chain((!self.differing.is_empty()).then_some(now + CHECK_INTERVAL)).min()
    }

    /// Notes that the Event was written. A change in the meantime counts from the next report on.
    pub(super) fn written(&mut self, transition: Transition, unix_millis: u64, now: Instant) {
        self.limit.take(now.into_std());
        let key = match transition {
            Transition::Raised { condition, .. } => {
                let (key, blocking) = (ConditionKey::of(&condition), condition.blocks());
                self.raised.insert((key.clone(), blocking), now);
                self.reported.insert(key.clone(), ReportedEvent { blocking, reported_unix_millis: unix_millis });
                key
            }
            Transition::Cleared { key, .. } => {
                self.reported.remove(&key);
                key
            }
        };
        self.differing.remove(&key);
    }

    fn transition(&self, key: &ConditionKey) -> Option<Transition> {
        let Some(condition) = self.current.get(key) else {
            let before = *self.reported.get(key)?;
            let pods_start = before.blocking && !self.current.values().any(Condition::blocks);
            return Some(Transition::Cleared { key: key.clone(), before, pods_start });
        };
        let is_one_of_many = !self.reported.contains_key(key) && self.count(key.reason) >= PER_REASON;
        if is_one_of_many || self.raised.contains_key(&(key.clone(), condition.blocks())) {
            return None;
        }
        let is_other =
            |other: &&ConditionKey| other.reason == key.reason && !self.reported.contains_key(other) && *other != key;
        let others = self.current.keys().filter(is_other).count();
        Some(Transition::Raised { condition: condition.clone(), others })
    }

    /// How many conditions with a reason are reported.
    fn count(&self, reason: Reason) -> usize {
        self.reported.keys().filter(|key| key.reason == reason).count()
    }
}

impl ConditionKey {
    /// How long a difference lasts until its Event. A plugin waited for the link already.
    const fn hold(&self, hold: Duration) -> Duration {
        if matches!(self.reason, Reason::LinkNotReturned) { Duration::ZERO } else { hold }
    }

    fn of(condition: &Condition) -> Self {
        Self { reason: condition.reason, subject: condition.subject.clone() }
    }
}
