//! The request budget that all calls of a process share: a token bucket whose rate learns from the service's 429.
//!
//! ```text
//!   rate │‾‾‾‾‾╲          ╱‾‾   halved by a 429 (once a second at most), nothing is sent until Retry-After is over;
//!        │      ╲╱╲    ╱        grows again by a constant per second of answered calls
//!        └────────────────▶ t
//! ```
//!
//! The service publishes no figures (limits differ by operation, tenancy and day), so the rate is found, not configured.

mod bucket;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use bucket::Bucket;

/// Bounds of the budget.
#[derive(Clone, Debug, PartialEq)]
pub struct Rates {
    /// Requests per second to begin with, and the most there ever are.
    pub most: f64,
    /// The fewest: so that there is always an answer to learn from.
    pub least: f64,
    /// How many may go at once after a quiet time.
    pub burst: f64,
}

/// 20 a second is what Oracle's cloud controller manager allows itself.
impl Default for Rates {
    fn default() -> Self {
        Self { most: 20.0, least: 0.5, burst: 5.0 }
    }
}

/// The budget; clones share it.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Mutex<Bucket>>);

/// How the budget stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing {
    /// Requests per second at present.
    pub rate: f64,
    /// For how long nothing is sent.
    pub paused: Duration,
}

impl Budget {
    /// A budget within these bounds.
    #[must_use]
    pub fn new(rates: Rates) -> Self {
        Self(Arc::new(Mutex::new(Bucket::new(rates, Instant::now()))))
    }

    /// How it stands now, for metrics.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.bucket().standing(Instant::now())
    }

    /// Waits until a request may go, first come first served.
    ///
    /// # Errors
    /// The wait that would be needed, when it ends after `end`; then nothing was taken.
    pub(crate) async fn take(&self, end: Instant) -> Result<(), Duration> {
        let now = Instant::now();
        let mut turn = self.bucket().reserve(now, end).map_err(|turn| turn.saturating_duration_since(now))?;
        loop {
            sleep_until(turn).await;
            // Somebody was told to pause meanwhile: that goes for all.
            turn = match self.bucket().paused_until() {
                Some(until) if until > turn => until,
                _ => return Ok(()),
            };
            if turn > end {
                return Err(turn.saturating_duration_since(now));
            }
        }
    }

    /// A request was answered with 429.
    pub(crate) fn throttled(&self, retry_after: Option<Duration>) {
        self.bucket().throttled(Instant::now(), retry_after);
    }

    /// A request was answered otherwise.
    pub(crate) fn answered(&self) {
        self.bucket().answered(Instant::now());
    }

    fn bucket(&self) -> MutexGuard<'_, Bucket> {
        // Every change is complete in itself, so a panic elsewhere leaves it usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self::new(Rates::default())
    }
}
