//! Things that the last list of VNICs lacks and that are kept nevertheless. A grace period bridges lists that are incomplete for
//! a moment. Things stay longer if something else shows that they are still there.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The time of a list, and how long what it lacks is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct AbsenceGrace {
    pub(super) now: Instant,
    pub(super) period: Duration,
}

/// What the last list lacks.
#[derive(Clone, Debug)]
pub(super) struct Absences<K>(BTreeMap<K, Absence>);

#[derive(Clone, Copy, Debug)]
struct Absence {
    since: Instant,
    is_overdue: bool,
}

impl<K> Default for Absences<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord> Absences<K> {
    /// Notes that a list lacks `key`. Returns whether it is kept: within its grace period, or beyond it if it `is_held`.
    pub(super) fn keep(&mut self, before: &Self, key: K, grace: AbsenceGrace, is_held: impl FnOnce() -> bool) -> bool {
        let since = before.0.get(&key).map_or(grace.now, |absence| absence.since);
        let is_overdue = grace.now.saturating_duration_since(since) >= grace.period;
        let is_kept = !is_overdue || is_held();
        if is_kept {
            self.0.insert(key, Absence { since, is_overdue });
        }
        is_kept
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.keys()
    }

    /// What has been lacking for longer than the grace period.
    pub(super) fn overdue(&self) -> impl Iterator<Item = &K> {
        self.0.iter().filter(|(_, absence)| absence.is_overdue).map(|(key, _)| key)
    }
}
