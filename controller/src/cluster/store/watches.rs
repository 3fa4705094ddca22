//! The state of the watches: since when one is behind the API server, and why.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use resident::watch_activity::WatchActivity;
use tokio::time::Instant;

use crate::cluster::store::WATCH_SECONDS;

/// How long a watch may fail before it is logged again.
const LOG_INTERVAL: Duration = Duration::from_mins(5);
/// A watch that recovers reports nothing until something changes. It retries within half a minute and would report the next
/// failure within five: one that was silent for longer works.
const RETRIED_WITHIN: Duration = Duration::from_secs(330);
/// A watch without changes brings a bookmark about once a minute, or is opened again by the server's end of it.
const BOOKMARKED_WITHIN: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 15);
/// A watch that has failed for this long is reported.
const REPORTED_AFTER: Duration = Duration::from_mins(2);

/// All of them, by their kind.
#[derive(Debug, Default)]
pub struct Watches(Mutex<BTreeMap<&'static str, Watch>>);

#[derive(Debug, Default)]
struct Watch {
    /// When it last brought a byte, once it is open.
    activity: Option<WatchActivity>,
    /// Since when it has been reading its list, if that is not complete.
    reading: Option<Instant>,
    failing: Option<WatchFailure>,
}

#[derive(Debug)]
struct WatchFailure {
    first: Instant,
    last: Instant,
    logged: Instant,
    why: String,
}

impl Watches {
    /// Its activity shows whether it is alive.
    pub fn follow(&self, what: &'static str, activity: WatchActivity) {
        self.all().entry(what).or_default().activity = Some(activity);
    }

    /// It starts to read its list.
    pub fn reads(&self, what: &'static str) {
        self.all().entry(what).or_default().reading.get_or_insert_with(Instant::now);
    }

    /// It is up to date.
    pub fn is_current(&self, what: &'static str) {
        let mut all = self.all();
        let watch = all.entry(what).or_default();
        watch.reading = None;
        if watch.failing.take().is_some() {
            tracing::info!(event = "watch.recovered", what);
        }
    }

    /// It failed, and retries.
    pub fn failed(&self, what: &'static str, why: String) {
        let now = Instant::now();
        let mut all = self.all();
        let watch = all.entry(what).or_default();
        let before = watch.failing.take().filter(|before| now < before.last + RETRIED_WITHIN);
        let logged = before.as_ref().map(|before| before.logged).filter(|logged| now < *logged + LOG_INTERVAL);
        if logged.is_none() {
            tracing::warn!(event = "watch.failed", what, error = why, "retried with backoff");
        }
        let first = before.map_or(now, |before| before.first);
        watch.failing = Some(WatchFailure { first, last: now, logged: logged.unwrap_or(now), why });
    }

    /// How long each has been behind.
    pub fn behind(&self) -> Vec<(&'static str, Duration)> {
        let now = Instant::now();
        self.all().iter().map(|(what, watch)| (*what, watch.behind(now))).collect()
    }

    /// Those that have been failing for long, and why.
    pub fn trouble(&self) -> Option<String> {
        let now = Instant::now();
        let all = self.all();
        let lasting = all.iter().filter(|(_, watch)| watch.behind(now) >= REPORTED_AFTER);
        let logged = lasting.filter_map(|(what, watch)| Some((what, watch.behind(now), &watch.failing.as_ref()?.why)));
        let logged: Vec<String> =
            logged.map(|(what, behind, why)| format!("{what} not read for {} s: {why}", behind.as_secs())).collect();
        (!logged.is_empty()).then(|| logged.join("; "))
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<&'static str, Watch>> {
        // Each change is complete by itself, so a panic elsewhere leaves it usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    fn behind(&self, now: Instant) -> Duration {
        let failing = self.failing.as_ref().filter(|failing| now < failing.last + RETRIED_WITHIN);
        match (self.reading, failing) {
            (Some(since), _) => now.saturating_duration_since(since),
            // One failure may be over by now.
            (None, Some(failing)) => failing.last - failing.first,
            (None, None) => self.silent(now),
        }
    }

    /// How long nothing arrived, if a bookmark should have.
    fn silent(&self, now: Instant) -> Duration {
        let silent = self.activity.as_ref().map(|activity| now.saturating_duration_since(activity.last_byte()));
        silent.filter(|silent| *silent > BOOKMARKED_WITHIN).unwrap_or_default()
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
    async fn an_unread_watch_is_behind_from_the_start() {
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
    async fn silent_watch_is_behind_since_its_last_byte() {
        let watches = Watches::default();
        watches.follow("Nodes", WatchActivity::begin());
        watches.is_current("Nodes");
        advance(SECOND * 120).await;
        assert_eq!(seconds(&watches), [0], "it may have no bookmarks");
        advance(SECOND * 140).await;
        assert_eq!(seconds(&watches), [260]);
        watches.follow("Nodes", WatchActivity::begin());
        assert_eq!(seconds(&watches), [0]);
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_watch_that_keeps_failing_is_behind() {
        let watches = Watches::default();
        watches.is_current("Nodes");
        watches.failed("Nodes", "refused".to_owned());
        advance(SECOND * 300).await;
        assert_eq!(seconds(&watches), [0], "it may work since");
        watches.failed("Nodes", "refused".to_owned());
        assert_eq!(seconds(&watches), [300]);
        advance(RETRIED_WITHIN).await;
        assert_eq!((seconds(&watches), watches.trouble()), (vec![0], None));
        watches.failed("Nodes", "refused".to_owned());
        assert_eq!(seconds(&watches), [0], "that is another failure");
    }
}
