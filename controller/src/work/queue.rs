//! The queue as data: what is due when, what is being worked on. Knows no clock.
//!
//! ```text
//!   Wanted  ─────────────────────────────────────────────▶ ╮ three of these,
//!   Rollout ─────────────────────▶ ╮ three of these,        ├─▶ given out
//!   Regular ──────────────▶ ╮      ├─▶ then one of those ─▶ ╯ then one of those
//!   Again   ─▶ one by one ─▶ ┴───▶ ╯
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Debug;
use std::hash::Hash;
use std::mem;
use std::time::Duration;

use tokio::time::Instant;

use super::{Longest, Next, Pause, Retries};

/// So many keys of a lane are given out in a row when others behind it are due, too: however many are wanted, the others have
/// their part.
const IN_A_ROW: u32 = 3;

/// So often a key is tried again at its own pace; from then on it is one of many that wait for their turn. With pauses that
/// double from a second, that is a minute, in which what passes has passed: somebody else's attach, a lost connection. OKE, which
/// makes a pod network in a minute or two, is waited for with longer ones.
const OWN_PACE: u32 = 6;

/// How many times as far off as is needed something must be before it is brought nearer.
const TOO_LATE: u32 = 2;

/// Keys and when each is due. A key that is being worked on is not given out again until it is done.
#[derive(Debug)]
pub struct Queue<K> {
    keys: HashMap<K, Entry>,
    /// Those not being worked on, by when they are due.
    order: BTreeMap<Lane, BTreeSet<(Instant, K)>>,
    retries: Retries,
    /// When a key was last given out because it failed before.
    tried_again: Option<Instant>,
    /// How many wanted keys were given out in a row, and of the others how many of rollouts.
    in_a_row: [u32; 2],
}

/// Why a key is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Somebody waits: it is new, changed or going, or something is on its way.
    Wanted,
    /// The same for one of many that a profile asks for: who asked for one thing does not wait for thousands.
    Rollout,
    /// To see that all is still well, or whether what failed a moment ago has passed.
    Regular,
    /// It has failed for a while, or others have to mend it.
    Again,
}

#[derive(Clone, Debug, Default)]
struct Entry {
    /// When it is due, and why; while it is being worked on, when somebody asked for it meanwhile.
    due: BTreeMap<Lane, Instant>,
    working: bool,
    /// Since it was wanted last, or did not fail.
    failures: u32,
    /// Whether it has waited for its turn once and goes on to do so.
    in_turn: bool,
}

/// How much is waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Due, and nobody has time, or it is not yet its turn.
    pub due: usize,
    /// Being worked on.
    pub working: usize,
    /// Due later.
    pub later: usize,
    /// Of all, those whose last attempts failed.
    pub failing: usize,
    /// How long what is due longest has waited; of what failed, the next one, since it was its turn.
    pub waited: Duration,
}

impl<K: Clone + Debug + Eq + Hash + Ord> Queue<K> {
    /// An empty one.
    #[must_use]
    pub fn new(retries: Retries) -> Self {
        Self { keys: HashMap::new(), order: BTreeMap::new(), retries, tried_again: None, in_a_row: [0; 2] }
    }

    /// What fails from here on is tried again after such pauses, and whatever failed so far apart.
    pub fn set_retries(&mut self, retries: Retries) {
        self.retries = retries;
    }

    /// Regular looks and polls that were put off further than is needed now come sooner, in the order in which they were to come.
    pub fn quicken(&mut self, longest: Longest, now: Instant) {
        for (lane, longest) in [(Lane::Regular, longest.regular), (Lane::Wanted, longest.soon)] {
            self.quicken_lane(lane, longest, now);
        }
    }

    fn quicken_lane(&mut self, lane: Lane, longest: Duration, now: Instant) {
        let Some(order) = self.order.get_mut(&lane) else { return };
        let last = order.last().map_or(Duration::ZERO, |(due, _)| due.saturating_duration_since(now));
        // Not for a trifle: what is needed changes with each answer.
        if last <= longest.saturating_mul(TOO_LATE) {
            return;
        }
        let late = now + longest;
        let too_late: Vec<_> = order.iter().rev().take_while(|(due, _)| *due > late).cloned().collect();
        for (before, key) in too_late {
            // All of them at the end of the pause would be a crowd: as they were spread, so they are.
            let share = before.saturating_duration_since(now).as_secs_f64() / last.as_secs_f64();
            let due = now + longest.mul_f64(share);
            if let Some(entry) = self.keys.get_mut(&key) {
                entry.due.insert(lane, due);
            }
            order.remove(&(before, key.clone()));
            order.insert((due, key));
        }
    }

    /// Has a key looked at, at the given time or when it is due anyway, whichever is first.
    pub fn add(&mut self, key: K, lane: Lane, at: Instant) {
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

    /// A key that is due; it counts as being worked on from here on. What is wanted comes first, but for one of the others now
    /// and then; among those alike, what is due longest.
    pub fn take(&mut self, now: Instant) -> Option<K> {
        let due = |lane| Some((self.next_in(lane)?, lane)).filter(|(due, _)| *due <= now);
        let other = [due(Lane::Regular), due(Lane::Again)].into_iter().flatten().min();
        let [wanted, rollouts] = self.in_a_row;
        let behind = in_turn((due(Lane::Rollout), rollouts), other);
        let (_, lane) = in_turn((due(Lane::Wanted), wanted), behind)?;
        self.in_a_row = match lane {
            Lane::Wanted => [wanted.saturating_add(1), rollouts],
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
                // Something is new: what failed before is another matter.
                Lane::Wanted | Lane::Rollout => (entry.failures, entry.in_turn) = (0, false),
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
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.order.keys().filter_map(|lane| self.next_in(*lane)).min()
    }

    /// When the next key of a lane is due.
    fn next_in(&self, lane: Lane) -> Option<Instant> {
        let (due, _) = self.order.get(&lane)?.first()?;
        let turn = self.tried_again.filter(|_| lane == Lane::Again).map(|last| last + self.retries.apart);
        Some(turn.map_or(*due, |turn| turn.max(*due)))
    }

    /// Somebody has worked on a key. What was asked meanwhile is done at once; `chance` (0.0–1.0) spreads the pauses.
    pub fn done(&mut self, key: &K, next: Next, now: Instant, chance: f64) {
        let Some(entry) = self.keys.get_mut(key) else { return };
        entry.working = false;
        let asked = mem::take(&mut entry.due);
        entry.failures = if next == Next::Failed { entry.failures.saturating_add(1) } else { 0 };
        // What rests did not fail, whatever it did before: another row of pauses has begun.
        entry.in_turn &= next == Next::Failed;
        let in_turn = entry.in_turn;
        let after = |number| if in_turn || number > OWN_PACE { Lane::Again } else { Lane::Regular };
        // Between nine tenths and all of it, so that what was read together is not looked at together for ever.
        let spread = |pause: Duration| pause.mul_f64(0.9 + chance.clamp(0.0, 1.0) / 10.0);
        let own = match next {
            Next::Settled(pause) => Some((Lane::Regular, spread(pause))),
            Next::Soon(pause) => Some((Lane::Wanted, pause)),
            Next::Failed => Some((after(entry.failures), self.retries.pauses.delay(entry.failures, chance))),
            Next::Stuck(pause) => Some((Lane::Again, spread(pause))),
            // Before its end nothing would be asked for.
            Next::BackOff(Pause { left, number }) => {
                Some((after(number), left.mul_f64(1.0 + chance.clamp(0.0, 1.0) / 10.0)))
            }
            Next::Gone => None,
        };
        if asked.is_empty() && own.is_none() {
            self.keys.remove(key);
        }
        for (lane, due) in asked.into_iter().chain(own.map(|(lane, pause)| (lane, now + pause))) {
            self.add(key.clone(), lane, due);
        }
    }

    /// How much is waiting.
    #[must_use]
    pub fn depth(&self, now: Instant) -> Depth {
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

/// What is first, but for one of those behind it after so many in a row.
fn in_turn<T>((first, in_a_row): (Option<T>, u32), behind: Option<T>) -> Option<T> {
    if in_a_row >= IN_A_ROW { behind.or(first) } else { first.or(behind) }
}

#[cfg(test)]
mod tests {
    use backoff::Backoff;

    use super::*;

    /// When a key is due again that rested like this and was given out in this lane, where one that failed has just had its turn.
    fn due_after(number: u32, lane: Lane) -> Duration {
        let now = Instant::now();
        let pauses = Backoff { first: Duration::from_secs(1), cap: Duration::from_secs(120) };
        let mut queue = Queue::new(Retries { pauses, apart: Duration::from_hours(1) });
        if lane != Lane::Again {
            queue.add("other", Lane::Again, now);
            assert_eq!(queue.take(now), Some("other"));
        }
        queue.add("a", lane, now);
        assert_eq!(queue.take(now), Some("a"));
        queue.done(&"a", Next::BackOff(Pause { left: Duration::from_secs(15), number }), now, 0.0);
        queue.next_due().unwrap() - now
    }

    #[test]
    fn who_begins_to_rest_does_so_at_its_own_pace_and_after_a_while_in_turn() {
        let (own, turn) = (Duration::from_secs(15), Duration::from_hours(1));
        for lane in [Lane::Wanted, Lane::Rollout, Lane::Regular, Lane::Again] {
            assert_eq!([1, OWN_PACE, OWN_PACE + 1, 100].map(|number| due_after(number, lane)), [own, own, turn, turn]);
        }
    }
}
