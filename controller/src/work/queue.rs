//! The queue as data: what is due when, what is being worked on. Knows no clock.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use patience::Backoff;
use tokio::time::Instant;

use super::Next;

/// Keys and when each is due. A key that is being worked on is not given out again until it is done.
#[derive(Debug)]
pub struct Queue<K> {
    keys: HashMap<K, Entry>,
    /// Those not being worked on, by when they are due.
    order: BTreeSet<(Instant, K)>,
    retry: Backoff,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// When it is due; while it is being worked on, when somebody asked for it meanwhile.
    due: Option<Instant>,
    working: bool,
    failures: u32,
}

/// How much is waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Due, and nobody has time.
    pub due: usize,
    /// Being worked on.
    pub working: usize,
    /// Due later.
    pub later: usize,
    /// Of all, those whose last attempts failed.
    pub failing: usize,
    /// How long what is due longest has waited.
    pub waited: Duration,
}

impl<K: Clone + Debug + Eq + Hash + Ord> Queue<K> {
    /// An empty one.
    #[must_use]
    pub fn new(retry: Backoff) -> Self {
        Self { keys: HashMap::new(), order: BTreeSet::new(), retry }
    }

    /// What fails from here on is tried again after such pauses.
    pub const fn set_retry(&mut self, retry: Backoff) {
        self.retry = retry;
    }

    /// Has a key looked at, at the given time or when it is due anyway, whichever is first.
    pub fn add(&mut self, key: K, at: Instant) {
        let entry = self.keys.entry(key.clone()).or_insert(Entry { due: None, working: false, failures: 0 });
        let before = entry.due;
        let due = before.map_or(at, |before| before.min(at));
        entry.due = Some(due);
        if !entry.working && before != Some(due) {
            if let Some(before) = before {
                self.order.remove(&(before, key.clone()));
            }
            self.order.insert((due, key));
        }
    }

    /// A key that is due, longest first; it counts as being worked on from here on.
    pub fn take(&mut self, now: Instant) -> Option<K> {
        let first = self.order.first().filter(|(due, _)| *due <= now)?.clone();
        self.order.remove(&first);
        let (_, key) = first;
        if let Some(entry) = self.keys.get_mut(&key) {
            entry.working = true;
            entry.due = None;
        }
        Some(key)
    }

    /// When the next key is due.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.order.first().map(|(due, _)| *due)
    }

    /// Somebody has worked on a key. What was asked meanwhile is done at once; `chance` (0.0–1.0) spreads the pauses.
    pub fn done(&mut self, key: &K, next: Next, now: Instant, chance: f64) {
        let Some(entry) = self.keys.get_mut(key) else { return };
        entry.working = false;
        let asked = entry.due.take();
        entry.failures = if next == Next::Failed { entry.failures.saturating_add(1) } else { 0 };
        let pause = match next {
            // Between nine tenths and all of it, so that what was read together is not looked at together for ever.
            Next::Settled(pause) => Some(pause.mul_f64(0.9 + chance.clamp(0.0, 1.0) / 10.0)),
            Next::Soon(pause) => Some(pause),
            Next::Failed => Some(self.retry.pause(entry.failures, chance)),
            Next::Gone => None,
        };
        match (asked, pause.map(|pause| now + pause)) {
            (None, None) => drop(self.keys.remove(key)),
            (asked, own) => {
                let due = asked.into_iter().chain(own).min().unwrap_or(now);
                self.add(key.clone(), due);
            }
        }
    }

    /// How much is waiting.
    #[must_use]
    pub fn depth(&self, now: Instant) -> Depth {
        let due = self.order.iter().take_while(|(due, _)| *due <= now).count();
        let working = self.keys.len() - self.order.len();
        Depth {
            due,
            working,
            later: self.order.len() - due,
            failing: self.keys.values().filter(|entry| entry.failures > 0).count(),
            waited: self.next_due().map_or(Duration::ZERO, |due| now.saturating_duration_since(due)),
        }
    }
}
