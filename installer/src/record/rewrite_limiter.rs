//! Two programs that revert each other's writes: after five repairs in ten minutes the installer repairs once a minute, and the
//! error names the change.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Repairs of one file within [`WINDOW`] before the backoff. A program that reverts our file as often as we write it does so
/// because of it, and every write makes the runtime load all configurations again.
const LIMIT: usize = 5;

/// Older repairs do not count.
pub(crate) const WINDOW: Duration = Duration::from_secs(600);

/// Between repairs during the backoff: the other program may have stopped since, and pods may have no network until then.
const BACKOFF: Duration = Duration::from_secs(60);

/// When repairs were made, in seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct RewriteLimiter(Vec<u64>);

impl RewriteLimiter {
    /// Counts a repair.
    pub(crate) fn count(&mut self, now: SystemTime) {
        self.0 = self.recent(now);
        self.0.push(seconds(now));
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How long until the next repair may be made; `None`: at once.
    pub(crate) fn pause(&self, now: SystemTime) -> Option<Duration> {
        let recent = self.recent(now);
        let last = recent.last().filter(|_| recent.len() >= LIMIT)?;
        let pause = BACKOFF.saturating_sub(Duration::from_secs(seconds(now).saturating_sub(*last)));
        Some(pause).filter(|pause| !pause.is_zero())
    }

    /// Repairs in the window, oldest first. A time in the future is of a wrong clock.
    pub(crate) fn recent(&self, now: SystemTime) -> Vec<u64> {
        let now = seconds(now);
        let mut recent: Vec<u64> = self.0.clone();
        recent.retain(|at| *at <= now && now - at < WINDOW.as_secs());
        recent.sort_unstable();
        recent
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
