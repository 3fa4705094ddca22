//! Pauses after failures, one per object, so that what the API server refuses of one profile does not keep others waiting.
//! Pure; every function is told the time.

use std::collections::BTreeMap;
use std::time::Duration;

use patience::Backoff;
use tokio::time::Instant;

/// Between failures of the same object.
const RETRY: Backoff = Backoff { first: Duration::from_secs(1), cap: Duration::from_mins(1) };

/// Objects that are left alone for a while, by name.
#[derive(Debug, Default)]
pub struct Rests(BTreeMap<String, Rest>);

#[derive(Debug)]
struct Rest {
    failures: u32,
    until: Instant,
}

impl Rests {
    /// Whether an object is to be left alone now.
    #[must_use]
    pub fn has(&self, object: &str, now: Instant) -> bool {
        self.0.get(object).is_some_and(|rest| now < rest.until)
    }

    /// Notes how a write went. `chance` is in 0.0–1.0, for the jitter.
    pub fn note(&mut self, object: &str, done: bool, (now, chance): (Instant, f64)) {
        if done {
            self.0.remove(object);
            return;
        }
        let rest = self.0.entry(object.to_owned()).or_insert(Rest { failures: 0, until: now });
        rest.failures = rest.failures.saturating_add(1);
        rest.until = now + RETRY.pause(rest.failures, chance);
    }

    /// When the first rest ends. Forgets those that ended long ago: nobody wants anything of their objects any more.
    pub fn next(&mut self, now: Instant) -> Option<Instant> {
        self.0.retain(|_, rest| now < rest.until + 2 * RETRY.cap);
        self.0.values().map(|rest| rest.until).filter(|until| now < *until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_minute_and_end_with_a_success() {
        let (mut rests, start) = (Rests::default(), Instant::now());
        let mut pauses = Vec::new();
        let mut now = start;
        for _ in 0..8 {
            rests.note("a", false, (now, 1.0));
            let until = rests.next(now).unwrap();
            assert!(rests.has("a", now) && !rests.has("a", until) && !rests.has("b", now));
            pauses.push((until - now).as_secs());
            now = until;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        rests.note("a", true, (now, 1.0));
        rests.note("a", false, (now, 0.0));
        assert_eq!(rests.next(now), Some(now + RETRY.first / 2), "shortened by half at most");
    }

    #[test]
    fn an_object_that_nobody_asks_for_any_more_is_forgotten() {
        let (mut rests, now) = (Rests::default(), Instant::now());
        rests.note("a", false, (now, 1.0));
        assert_eq!(rests.next(now + RETRY.first), None);
        assert_eq!(rests.next(now + RETRY.first + 2 * RETRY.cap), None);
        assert!(rests.0.is_empty());
    }
}
