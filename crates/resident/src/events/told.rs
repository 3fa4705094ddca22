//! What was told already, so that it is not told again for a while. Pure; every function is told the time.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

/// What was told a short while ago, by what makes news the same.
#[derive(Debug)]
pub struct Told<K> {
    quiet: Duration,
    most: usize,
    last: BTreeMap<K, Instant>,
    /// By time.
    order: VecDeque<(Instant, K)>,
}

impl<K: Clone + Ord> Told<K> {
    /// Nothing yet. For so long the same is not told again; so many are remembered: when there are more, the oldest is
    /// forgotten, and told once more at worst.
    #[must_use]
    pub const fn new(quiet: Duration, most: usize) -> Self {
        Self { quiet, most, last: BTreeMap::new(), order: VecDeque::new() }
    }

    /// Whether it is to be told now.
    pub fn is_new(&mut self, key: &K, now: Instant) -> bool {
        while let Some((told, key)) = self.order.front() {
            if now.saturating_duration_since(*told) < self.quiet && self.order.len() < self.most {
                break;
            }
            self.last.remove(key);
            self.order.pop_front();
        }
        !self.last.contains_key(key)
    }

    /// It is told; to be called for what was new.
    pub fn note(&mut self, key: K, now: Instant) {
        self.last.insert(key.clone(), now);
        self.order.push_back((now, key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Duration = Duration::from_mins(10);
    const MOST: usize = 1_000;

    fn is_new<K: Clone + Ord>(told: &mut Told<K>, key: &K, now: Instant) -> bool {
        let new = told.is_new(key, now);
        if new {
            told.note(key.clone(), now);
        }
        new
    }

    #[test]
    fn what_was_not_told_is_still_new() {
        let (mut told, start) = (Told::new(QUIET, MOST), Instant::now());
        assert!(told.is_new(&"one", start));
        assert!(is_new(&mut told, &"one", start));
        assert!(!told.is_new(&"one", start));
    }

    #[test]
    fn the_same_is_told_once_in_the_quiet_time_and_anything_else_at_once() {
        let (mut told, start) = (Told::new(QUIET, MOST), Instant::now());
        let mut is_new =
            |key: &'static str, minutes: u64| is_new(&mut told, &key, start + Duration::from_mins(minutes));
        assert!(is_new("one", 0));
        assert!(!is_new("one", 9));
        assert!(is_new("two", 9));
        assert!(is_new("one", 10));
    }

    #[test]
    fn it_remembers_a_bounded_number() {
        let (mut told, start) = (Told::new(QUIET, MOST), Instant::now());
        for number in 0..MOST + 100 {
            assert!(is_new(&mut told, &number, start));
        }
        assert!(told.last.len() <= MOST && told.last.len() == told.order.len(), "{}", told.last.len());
    }
}
