//! The queue as data: what is due when, what is being reconciled. Knows no clock.
//!
//! ```text
//!   Requested ───────────────────────────────────────────▶ ╮ three of these,
//!   Rollout   ────────────────────▶ ╮ three of these,        ├─▶ given out
//!   Regular   ─────────────▶ ╮      ├─▶ then one of those ─▶ ╯ then one of those
//!   Again     ▶ one by one ─▶ ┴───▶ ╯
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Debug;
use std::hash::Hash;
use std::mem;
use std::time::Duration;

use tokio::time::Instant;

use super::{NextReconcile, Pause, Retries};

/// At most so many keys of a lane are taken in a row while others behind it are due, so that the others make progress.
const IN_A_ROW: u32 = 3;

/// How often a key is retried at its own pace; then it waits in the common retry lane. With a backoff that doubles from one
/// second, that is a minute, enough for passing failures such as another program's attach or a lost connection. OKE needs a
/// minute or two for a pod network; that wait has a longer backoff.
const OWN_PACE: u32 = 6;

/// Keys and when each is due. A key that is being reconciled is not taken again until it is done.
#[derive(Debug)]
pub(crate) struct Queue<K> {
    keys: HashMap<K, Entry>,
    /// Those not being reconciled, by due time.
    order: BTreeMap<Lane, BTreeSet<(Instant, K)>>,
    retries: Retries,
    /// When a retried key was last taken.
    tried_again: Option<Instant>,
    /// How many wanted keys were taken in a row, and of the others how many of rollouts.
    in_a_row: [u32; 2],
}

/// Why a key is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Lane {
    /// A user waits: the object is new, changed or being deleted, or something is in progress.
    Requested,
    /// The same for a profile's object: single requests do not wait behind thousands.
    Rollout,
    /// A regular reconcile, or an early retry.
    Regular,
    /// It has failed for a while, or another party has to act.
    Again,
}

#[derive(Clone, Debug, Default)]
struct Entry {
    /// When it is due, and why; while it is being reconciled, when it was requested meanwhile.
    due: BTreeMap<Lane, Instant>,
    working: bool,
    /// Since it was last wanted, or did not fail.
    failures: u32,
    /// Whether it has already waited in the retry lane and keeps waiting there.
    in_turn: bool,
}

/// How many keys wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Depth {
    /// Due, without a free worker or a retry slot.
    pub due: usize,
    pub working: usize,
    pub later: usize,
    /// All whose last attempts failed.
    pub failing: usize,
    /// How long the longest due key has waited; of failed ones the next, since its retry slot.
    pub waited: Duration,
}

impl<K: Clone + Debug + Eq + Hash + Ord> Queue<K> {
    pub(crate) fn new(retries: Retries) -> Self {
        Self { keys: HashMap::new(), order: BTreeMap::new(), retries, tried_again: None, in_a_row: [0; 2] }
    }

    /// Sets the backoff of each key, and the interval between retries of failed ones, from now on.
    pub(crate) fn set_retries(&mut self, retries: Retries) {
        self.retries = retries;
    }

    /// Queues a key for the given time, or when it is due anyway, whichever is first.
    pub(crate) fn add(&mut self, key: K, lane: Lane, at: Instant) {
        let entry = self.keys.entry(key.clone()).or_default();
        let before = entry.due.get(&lane).copied();
        let due = before.map_or(at, |before| before.min(at));
        entry.due.insert(lane, due);
        if !entry.working && before != Some(due) {
            let order = self.order.entry(lane).or_default();
            if let Some(before) = before {
                order.remove(&(before, key.clone()));
            }
            order.insert((due, key));
        }
    }

    /// A due key; it counts as being reconciled from now on. Requested keys come first, except for one of the others now and
    /// then; within a lane, the longest due.
    pub(crate) fn take(&mut self, now: Instant) -> Option<K> {
        let due = |lane| Some((self.next_in(lane)?, lane)).filter(|(due, _)| *due <= now);
        let other = [due(Lane::Regular), due(Lane::Again)].into_iter().flatten().min();
        let [requested, rollouts] = self.in_a_row;
        let behind = in_turn(due(Lane::Rollout), rollouts, other);
        let (_, lane) = in_turn(due(Lane::Requested), requested, behind)?;
        self.in_a_row = match lane {
            Lane::Requested => [requested.saturating_add(1), rollouts],
            Lane::Rollout => [0, rollouts.saturating_add(1)],
            Lane::Regular | Lane::Again => [0, 0],
        };
        if lane == Lane::Again {
            self.tried_again = Some(now);
        }
        let (_, key) = self.order.get(&lane)?.first()?.clone();
        if let Some(entry) = self.keys.get_mut(&key) {
            entry.working = true;
            match lane {
                // Something is new, so earlier failures do not count.
                Lane::Requested | Lane::Rollout => (entry.failures, entry.in_turn) = (0, false),
                Lane::Again => entry.in_turn = true,
                Lane::Regular => {}
            }
            for (lane, due) in mem::take(&mut entry.due) {
                self.order.entry(lane).or_default().remove(&(due, key.clone()));
            }
        }
        Some(key)
    }

    /// When the next key is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.order.keys().filter_map(|lane| self.next_in(*lane)).min()
    }

    /// When the next key of a lane is due.
    fn next_in(&self, lane: Lane) -> Option<Instant> {
        let (due, _) = self.order.get(&lane)?.first()?;
        let turn = self.tried_again.filter(|_| lane == Lane::Again).map(|last| last + self.retries.apart);
        Some(turn.map_or(*due, |turn| turn.max(*due)))
    }

    /// A key was reconciled. What was requested meanwhile is done at once; `chance` (0.0–1.0) spreads the delays.
    pub(crate) fn done(&mut self, key: &K, next: NextReconcile, now: Instant, chance: f64) {
        let Some(entry) = self.keys.get_mut(key) else { return };
        entry.working = false;
        let requested = mem::take(&mut entry.due);
        entry.failures = if next == NextReconcile::Failed { entry.failures.saturating_add(1) } else { 0 };
        // A key that backs off without failure starts another sequence.
        entry.in_turn &= next == NextReconcile::Failed;
        let in_turn = entry.in_turn;
        let after = |number| if in_turn || number > OWN_PACE { Lane::Again } else { Lane::Regular };
        // Between nine tenths and all of it, so that keys that were read together do not stay together.
        let spread = |pause: Duration| pause.mul_f64(0.9 + chance.clamp(0.0, 1.0) / 10.0);
        let own = match next {
            NextReconcile::Settled(pause) => Some((Lane::Regular, spread(pause))),
            NextReconcile::Soon(pause) => Some((Lane::Requested, pause)),
            NextReconcile::Failed => Some((after(entry.failures), self.retries.pauses.delay(entry.failures, chance))),
            NextReconcile::Stuck(pause) => Some((Lane::Again, spread(pause))),
            // Before its end nothing would be requested.
            NextReconcile::BackOff(Pause { left, number }) => {
                Some((after(number), left.mul_f64(1.0 + chance.clamp(0.0, 1.0) / 10.0)))
            }
            NextReconcile::Gone => None,
        };
        if requested.is_empty() && own.is_none() {
            self.keys.remove(key);
        }
        for (lane, due) in requested.into_iter().chain(own.map(|(lane, pause)| (lane, now + pause))) {
            self.add(key.clone(), lane, due);
        }
    }

    /// How many keys wait.
    pub(crate) fn depth(&self, now: Instant) -> Depth {
        let count = |fits: &dyn Fn(&Entry) -> bool| self.keys.values().filter(|entry| fits(entry)).count();
        let (due, working) = (
            count(&|entry| !entry.working && entry.due.values().any(|due| *due <= now)),
            count(&|entry| entry.working),
        );
        Depth {
            due,
            working,
            later: self.keys.len() - due - working,
            failing: count(&|entry| entry.failures > 0),
            waited: self.next_due().map_or(Duration::ZERO, |due| now.saturating_duration_since(due)),
        }
    }
}

/// The first lane, except for one of those behind it after so many in a row.
fn in_turn<T>(first: Option<T>, in_a_row: u32, behind: Option<T>) -> Option<T> {
    if in_a_row >= IN_A_ROW { behind.or(first) } else { first.or(behind) }
}
