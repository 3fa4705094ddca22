//! Which condition to tell of next, by what was told and what is: not every change, but that the last word about each is true.
//! Pure; every function is told the time.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use resident::events::Told;
use tokio::time::Instant;

use crate::report::condition::{Condition, Reason};

#[cfg(test)]
mod tests;

/// A condition by what makes it the same, whatever words it is said in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    pub(super) reason: Reason,
    pub(super) subject: Option<String>,
}

/// How people know a condition that they were told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) blocking: bool,
    /// When they were told, in milliseconds since 1970.
    pub(super) told_unix_millis: u64,
}

/// What to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Telling {
    pub(super) name: Name,
    pub(super) what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// It is there.
    Raised {
        condition: Condition,
        /// How many more there are with the same reason, and nobody was told of.
        others: usize,
    },
    /// It is over.
    Over {
        before: Standing,
        /// Whether nothing stops new pods any more, and that did.
        ready: bool,
    },
}

/// What was told, what is, and how much may be told.
#[derive(Debug)]
pub(super) struct Plan {
    standing: BTreeMap<Name, Standing>,
    now: BTreeMap<Name, Condition>,
    /// Since when it is not as it was told.
    differing: BTreeMap<Name, Instant>,
    recent: Told<(Name, bool)>,
    allowance: Allowance,
}

/// How many events may be written: some at once, then one in a while.
#[derive(Debug)]
struct Allowance {
    left: u32,
    /// When the last one was added.
    added: Option<Instant>,
}

/// A condition that comes again is told again after so long.
const QUIET: Duration = Duration::from_mins(10);
/// So many comings are remembered: more than may be told in the time.
const MOST: usize = 100;
/// So many with the same reason are told one by one; the last one says how many more there are.
const PER_REASON: usize = 4;
/// Events of a node at once, and the time after which there is one more: what a node that has every trouble at once tells is
/// bounded in etcd, which keeps an event for an hour, at the sum of both.
const BURST: u32 = 20;
const REFILL: Duration = Duration::from_mins(3);
/// While there is something to tell that may not be told yet.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

impl Plan {
    pub(super) const fn new(standing: BTreeMap<Name, Standing>) -> Self {
        Self {
            standing,
            now: BTreeMap::new(),
            differing: BTreeMap::new(),
            recent: Told::new(QUIET, MOST),
            allowance: Allowance { left: BURST, added: None },
        }
    }

    /// What people know.
    pub(super) const fn standing(&self) -> &BTreeMap<Name, Standing> {
        &self.standing
    }

    /// Notes what is. Tells how many changes nobody will be told of: they stood for the whole of `hold` and are no more.
    pub(super) fn note(&mut self, conditions: &[Condition], hold: Duration, now: Instant) -> usize {
        self.now.clear();
        // A start is nothing to tell of. The worst comes first.
        for condition in conditions.iter().filter(|condition| condition.reason != Reason::Starting) {
            let name = Name { reason: condition.reason, subject: condition.subject.clone() };
            self.now.entry(name).or_insert_with(|| condition.clone());
        }
        let mut before = std::mem::take(&mut self.differing);
        for name in self.standing.keys().chain(self.now.keys()) {
            let known = self.standing.get(name).map(|standing| standing.blocking);
            if known != self.now.get(name).map(Condition::blocks) {
                let since = before.remove(name).unwrap_or(now);
                self.differing.entry(name.clone()).or_insert(since);
            }
        }
        before.values().filter(|since| now.saturating_duration_since(**since) >= hold).count()
    }

    /// What to tell now of what has stood for `hold`: what stops pods first, then what nothing was told of yet.
    pub(super) fn due(&mut self, hold: Duration, now: Instant) -> Option<Telling> {
        if !self.allowance.any(now) {
            return None;
        }
        let held = |since: &Instant| now.saturating_duration_since(*since) >= hold;
        let mut candidates: Vec<Name> =
            self.differing.iter().filter(|(_, since)| held(since)).map(|(name, _)| name.clone()).collect();
        candidates.sort_by_key(|name| {
            let blocks = self.now.get(name).is_some_and(Condition::blocks);
            (Reverse(blocks), self.told_of(name.reason))
        });
        candidates.into_iter().find_map(|name| self.telling(name, now))
    }

    /// When to look again, if nothing happens until then.
    pub(super) fn next(&self, hold: Duration, now: Instant) -> Option<Instant> {
        let ripe = self.differing.values().map(|since| *since + hold).filter(|ripe| *ripe > now);
        let later = (!self.differing.is_empty()).then_some(now + LOOK_AGAIN);
        ripe.chain(later).min()
    }

    /// It was told.
    pub(super) fn told(&mut self, telling: Telling, unix_millis: u64, now: Instant) {
        let Telling { name, what } = telling;
        self.allowance.take(now);
        match what {
            What::Raised { condition, .. } => {
                let blocking = condition.blocks();
                self.recent.note((name.clone(), blocking), now);
                let as_it_is = self.now.get(&name).map(Condition::blocks) == Some(blocking);
                self.standing.insert(name.clone(), Standing { blocking, told_unix_millis: unix_millis });
                self.settled(&name, as_it_is, now);
            }
            What::Over { .. } => {
                self.standing.remove(&name);
                let as_it_is = !self.now.contains_key(&name);
                self.settled(&name, as_it_is, now);
            }
        }
    }

    /// What is may have changed again while it was told.
    fn settled(&mut self, name: &Name, as_it_is: bool, now: Instant) {
        self.differing.remove(name);
        if !as_it_is {
            self.differing.insert(name.clone(), now);
        }
    }

    fn telling(&mut self, name: Name, now: Instant) -> Option<Telling> {
        let Some(condition) = self.now.get(&name) else {
            let before = *self.standing.get(&name)?;
            let ready = before.blocking && !self.now.values().any(Condition::blocks);
            return Some(Telling { name, what: What::Over { before, ready } });
        };
        let (condition, told) = (condition.clone(), self.told_of(name.reason));
        let is_known = self.standing.contains_key(&name);
        if !is_known && told >= PER_REASON || !self.recent.is_new(&(name.clone(), condition.blocks()), now) {
            return None;
        }
        let untold =
            |other: &&Name| other.reason == name.reason && !self.standing.contains_key(other) && **other != name;
        let others = self.now.keys().filter(untold).count();
        Some(Telling { name, what: What::Raised { condition, others } })
    }

    /// How many of a reason people know.
    fn told_of(&self, reason: Reason) -> usize {
        self.standing.keys().filter(|name| name.reason == reason).count()
    }
}

impl Allowance {
    fn any(&mut self, now: Instant) -> bool {
        let added = *self.added.get_or_insert(now);
        let periods = now.saturating_duration_since(added).as_secs() / REFILL.as_secs();
        let more = u32::try_from(periods).unwrap_or(u32::MAX);
        self.left = self.left.saturating_add(more).min(BURST);
        self.added = Some(added + REFILL * more);
        self.left > 0
    }

    fn take(&mut self, now: Instant) {
        // What is full begins to fill when something is taken.
        if self.left == BURST {
            self.added = Some(now);
        }
        self.left = self.left.saturating_sub(1);
    }
}
