//! What this process did to each item. An item that another program keeps setting back is left alone for an hour, and what the
//! kernel refuses is retried with a backoff. Lost with the process, which only means another attempt.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use backoff::{Backoff, chance};
use tunables::Item;

/// The shortest time between two writes of a reverted item; comparisons are about a minute apart.
const SET_BACK_GAP: Duration = Duration::from_secs(50);
/// Writes within [`SET_BACK_WINDOW`] after which the agent leaves a reverted item alone.
const SET_BACKS: usize = 3;
const SET_BACK_WINDOW: Duration = Duration::from_mins(10);
/// How long the agent leaves it alone.
pub(super) const STOP: Duration = Duration::from_hours(1);
/// Between attempts to set what the kernel refuses.
const REFUSED: Backoff = Backoff { first: Duration::from_mins(2), cap: Duration::from_hours(1) };

/// All items of a document.
#[derive(Debug)]
pub(super) struct History {
    items: BTreeMap<Item, ItemHistory>,
    /// For the jitter of a backoff.
    chance: fn() -> f64,
}

impl Default for History {
    fn default() -> Self {
        Self { items: BTreeMap::new(), chance }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct ItemHistory {
    /// The value that it is about; another one begins a new history.
    value: String,
    /// Whether the kernel has had the value.
    was_in_sync: bool,
    set_back: Vec<Instant>,
    stopped_until: Option<Instant>,
    failures: u32,
    retry_at: Option<Instant>,
    error: String,
}

/// What to do about an item that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// Set it: for the first time, or after a failure.
    Set,
    /// Another program changed it: set it back.
    SetBack,
    /// Another program changed it again, less than a minute after it was set back.
    Wait,
    /// Another program changed it too often: leave it alone for this long.
    Stop(Duration),
    /// The kernel refused the value: the error, and when to retry.
    Backoff(String, Duration),
}

impl History {
    /// What to do about an item with another value. `is_drift` says that the kernel had the value earlier in this boot.
    pub(super) fn attempt(&self, item: &Item, value: &str, is_drift: bool, now: Instant) -> Attempt {
        let Some(history) = self.items.get(item).filter(|history| history.value == value) else {
            return if is_drift { Attempt::SetBack } else { Attempt::Set };
        };
        let left =
            |until: Option<Instant>| until.map(|until| until.saturating_duration_since(now)).filter(|it| !it.is_zero());
        if let Some(left) = left(history.stopped_until) {
            return Attempt::Stop(left);
        }
        if let Some(left) = left(history.retry_at) {
            return Attempt::Backoff(history.error.clone(), left);
        }
        if !(is_drift || history.was_in_sync) {
            return Attempt::Set;
        }
        let recent = |at: &&Instant| now.saturating_duration_since(**at) < SET_BACK_WINDOW;
        match history.set_back.iter().filter(recent).count() {
            SET_BACKS.. => Attempt::Stop(STOP),
            _ if history.set_back.last().is_some_and(|at| now.saturating_duration_since(*at) < SET_BACK_GAP) => {
                Attempt::Wait
            }
            _ => Attempt::SetBack,
        }
    }

    /// The kernel has the value.
    pub(super) fn note_in_sync(&mut self, item: &Item, value: &str) {
        let history = self.of(item, value);
        (history.was_in_sync, history.failures, history.retry_at) = (true, 0, None);
    }

    /// The value was set back.
    pub(super) fn note_set_back(&mut self, item: &Item, value: &str, now: Instant) {
        let history = self.of(item, value);
        history.set_back.retain(|at| now.saturating_duration_since(*at) < SET_BACK_WINDOW);
        history.set_back.push(now);
    }

    /// The item is left alone for a while.
    pub(super) fn note_stop(&mut self, item: &Item, value: &str, now: Instant) {
        let history = self.of(item, value);
        if history.stopped_until.is_none_or(|until| until <= now) {
            history.stopped_until = Some(now + STOP);
            history.set_back.clear();
        }
    }

    /// The kernel refused the value.
    pub(super) fn note_refused(&mut self, item: &Item, value: &str, error: &str, now: Instant) {
        let chance = (self.chance)();
        let history = self.of(item, value);
        history.failures += 1;
        history.retry_at = Some(now + REFUSED.delay(history.failures, chance));
        error.clone_into(&mut history.error);
    }

    /// The value was withdrawn: another program did not set it back.
    pub(super) fn forget(&mut self, item: &Item) {
        self.items.remove(item);
    }

    /// Forgets items that are neither set nor restored any more.
    pub(super) fn retain(&mut self, is_known: impl Fn(&Item) -> bool) {
        self.items.retain(|item, _| is_known(item));
    }

    fn of(&mut self, item: &Item, value: &str) -> &mut ItemHistory {
        let history = self.items.entry(item.clone()).or_default();
        if history.value != value {
            *history = ItemHistory { value: value.to_owned(), ..ItemHistory::default() };
        }
        history
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn item_is_left_alone_for_an_hour_after_three_set_backs() {
        let (mut history, item, start) = (History::default(), Item::HugePages, Instant::now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        assert_eq!(history.attempt(&item, "1", false, at(0)), Attempt::Set);
        history.note_in_sync(&item, "1");
        for minute in 1..=3 {
            assert_eq!(history.attempt(&item, "1", true, at(60 * minute)), Attempt::SetBack);
            history.note_set_back(&item, "1", at(60 * minute));
            history.note_in_sync(&item, "1");
        }
        assert_eq!(history.attempt(&item, "1", true, at(240)), Attempt::Stop(STOP));
        history.note_stop(&item, "1", at(240));
        assert_eq!(history.attempt(&item, "1", true, at(300)), Attempt::Stop(STOP - Duration::from_mins(1)));
        assert_eq!(history.attempt(&item, "2", false, at(300)), Attempt::Set, "another value");
        assert_eq!(history.attempt(&item, "1", true, at(240 + 3600)), Attempt::SetBack, "an hour later");
    }

    #[test]
    fn item_is_set_back_at_most_once_a_minute_and_rarely_changed_ones_for_ever() {
        let (mut history, item, start) = (History::default(), Item::HugePages, Instant::now());
        for ten_minutes in 0..20 {
            let now = start + Duration::from_mins(5) * ten_minutes;
            assert_eq!(history.attempt(&item, "1", true, now), Attempt::SetBack);
            history.note_set_back(&item, "1", now);
            assert_eq!(history.attempt(&item, "1", true, now + Duration::from_secs(5)), Attempt::Wait);
        }
    }

    #[test]
    fn refused_value_is_retried_with_a_backoff_until_another_is_named() {
        let (mut history, item, now) =
            (History { chance: || 1.0, ..History::default() }, Item::HugePages, Instant::now());
        for (failures, minutes) in [(1, 2), (2, 4), (3, 8), (9, 60)] {
            while history.items.get(&item).is_none_or(|it| it.failures < failures) {
                history.note_refused(&item, "1", "EINVAL", now);
            }
            let expected = Attempt::Backoff("EINVAL".to_owned(), Duration::from_mins(minutes));
            assert_eq!(history.attempt(&item, "1", false, now), expected);
        }
        assert_eq!(history.attempt(&item, "2", false, now), Attempt::Set);
        assert_eq!(history.attempt(&item, "1", false, now + Duration::from_hours(1)), Attempt::Set);
    }
}
