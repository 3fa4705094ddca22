//! How the watches stand: since when one is behind what the API server has, and why.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// For how long a watch may fail before it is said again.
const TOLD_AGAIN: Duration = Duration::from_mins(5);
/// A watch that goes on after a failure says nothing until something changes. It tries again within half a minute and hears of
/// the next failure within five: who has been silent for longer stands.
const STANDS: Duration = Duration::from_secs(330);
/// A watch that has failed for so long is no accident.
const PATIENCE: Duration = Duration::from_mins(2);

/// All of them, by what they watch.
#[derive(Debug, Default)]
pub struct Watches(Mutex<BTreeMap<&'static str, Watch>>);

#[derive(Debug, Default)]
struct Watch {
    /// Since when it has been reading everything, if it has not come to the end.
    reading: Option<Instant>,
    failing: Option<Failing>,
}

#[derive(Debug)]
struct Failing {
    first: Instant,
    last: Instant,
    told: Instant,
    why: String,
}

impl Watches {
    /// It begins to read everything.
    pub fn reads(&self, what: &'static str) {
        self.all().entry(what).or_default().reading.get_or_insert_with(Instant::now);
    }

    /// It has what the API server has.
    pub fn is_current(&self, what: &'static str) {
        if let Some(Watch { failing: Some(_), .. }) = self.all().insert(what, Watch::default()) {
            tracing::info!(event = "watch.recovered", what);
        }
    }

    /// It failed, and is tried again.
    pub fn failed(&self, what: &'static str, why: String) {
        let now = Instant::now();
        let mut all = self.all();
        let watch = all.entry(what).or_default();
        let before = watch.failing.take().filter(|before| now < before.last + STANDS);
        let told = before.as_ref().map(|before| before.told).filter(|told| now < *told + TOLD_AGAIN);
        if told.is_none() {
            tracing::warn!(event = "watch.failed", what, error = why, "retried with backoff");
        }
        let first = before.map_or(now, |before| before.first);
        watch.failing = Some(Failing { first, last: now, told: told.unwrap_or(now), why });
    }

    /// For how long each has been behind.
    #[must_use]
    pub fn behind(&self) -> Vec<(&'static str, Duration)> {
        let now = Instant::now();
        self.all().iter().map(|(what, watch)| (*what, watch.behind(now))).collect()
    }

    /// Those that have been failing for long, and why.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let now = Instant::now();
        let all = self.all();
        let lasting = all.iter().filter(|(_, watch)| watch.behind(now) >= PATIENCE);
        let told = lasting.filter_map(|(what, watch)| Some((what, watch.behind(now), &watch.failing.as_ref()?.why)));
        let told: Vec<String> =
            told.map(|(what, behind, why)| format!("{what} not read for {} s: {why}", behind.as_secs())).collect();
        (!told.is_empty()).then(|| told.join("; "))
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<&'static str, Watch>> {
        // Every change is complete in itself, so a panic elsewhere leaves it usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    fn behind(&self, now: Instant) -> Duration {
        let failing = self.failing.as_ref().filter(|failing| now < failing.last + STANDS);
        match (self.reading, failing) {
            (Some(since), _) => now.saturating_duration_since(since),
            // One failure may be over by now.
            (None, Some(failing)) => failing.last - failing.first,
            (None, None) => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn seconds(watches: &Watches) -> Vec<u64> {
        watches.behind().into_iter().map(|(_, behind)| behind.as_secs()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_never_read_is_behind_from_the_beginning_and_says_why_once_it_fails() {
        let watches = Watches::default();
        watches.reads("Nodes");
        advance(SECOND * 200).await;
        assert_eq!((seconds(&watches), watches.trouble()), (vec![200], None), "a large cluster");
        watches.failed("Nodes", "forbidden".to_owned());
        watches.reads("Nodes");
        assert_eq!(watches.trouble().unwrap(), "Nodes not read for 200 s: forbidden");
        watches.is_current("Nodes");
        assert_eq!((seconds(&watches), watches.trouble()), (vec![0], None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_fails_again_and_again_is_behind_and_one_that_failed_once_is_not() {
        let watches = Watches::default();
        watches.is_current("Nodes");
        watches.failed("Nodes", "refused".to_owned());
        advance(SECOND * 300).await;
        assert_eq!(seconds(&watches), [0], "it may stand since");
        watches.failed("Nodes", "refused".to_owned());
        assert_eq!(seconds(&watches), [300]);
        advance(STANDS).await;
        assert_eq!((seconds(&watches), watches.trouble()), (vec![0], None));
        watches.failed("Nodes", "refused".to_owned());
        assert_eq!(seconds(&watches), [0], "that is another story");
    }
}
