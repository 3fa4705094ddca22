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

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync;
use tokio::time::{Instant, sleep_until, timeout_at};

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
pub struct Budget(Arc<BudgetQueue>);

#[derive(Debug)]
struct BudgetQueue {
    bucket: Mutex<Bucket>,
    /// Its holder is first in line, and waits for its turn as often as that moves. A backoff applies to all; afterwards they go
    /// one by one at the new rate.
    line: sync::Mutex<()>,
    /// The length of the line.
    waiting: AtomicU32,
}

/// A place in the line, given up when it is dropped.
struct QueuePlace<'a>(&'a AtomicU32);

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The state of the budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BudgetState {
    /// Requests per second at present.
    pub rate: f64,
    /// The same, averaged over about a minute: for plans that outlast a moment.
    pub usual: f64,
    /// For how long nothing is sent.
    pub paused: Duration,
}

impl Budget {
    /// A budget within these bounds.
    pub fn new(rates: Rates) -> Self {
        let bucket = Mutex::new(Bucket::new(rates, Instant::now()));
        Self(Arc::new(BudgetQueue { bucket, line: sync::Mutex::default(), waiting: AtomicU32::default() }))
    }

    /// The rate that is permitted now.
    pub fn state(&self) -> BudgetState {
        self.bucket().state(Instant::now())
    }

    /// Waits until a request may go, first come first served.
    ///
    /// # Errors
    /// The wait that would be needed, when it ends after `end`; then nothing was taken. Returned at once where it can be
    /// foreseen.
    pub(crate) async fn take(&self, end: Instant) -> Result<(), Duration> {
        let begun = Instant::now();
        let too_long = |turn: Instant| Err(turn.saturating_duration_since(begun));
        let before = self.0.waiting.fetch_add(1, Ordering::Relaxed);
        let _place = QueuePlace(&self.0.waiting);
        let turn = self.bucket().turn(begun, before);
        if turn > end {
            return too_long(turn);
        }
        let Ok(_first) = timeout_at(end, self.0.line.lock()).await else { return too_long(end) };
        loop {
            let Err(turn) = self.bucket().take(Instant::now()) else { return Ok(()) };
            if turn > end {
                return too_long(turn);
            }
            sleep_until(turn).await;
        }
    }

    /// A request was answered with 429. Called by the client, and by tests of callers that have none.
    pub fn throttled(&self, retry_after: Option<Duration>) {
        self.bucket().throttled(Instant::now(), retry_after);
    }

    /// A request was answered otherwise.
    pub(crate) fn answered(&self) {
        self.bucket().answered(Instant::now());
    }

    fn bucket(&self) -> MutexGuard<'_, Bucket> {
        // Every change is complete in itself, so a panic elsewhere leaves it usable.
        self.0.bucket.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self::new(Rates::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When each of so many is served, in tenths of a second after `begun`; none: there was no room.
    async fn served(budget: &Budget, callers: u32, patience: Duration, begun: Instant) -> Vec<Option<u64>> {
        let end = begun + patience;
        let waits = (0..callers).map(|_| {
            let budget = budget.clone();
            tokio::spawn(async move { budget.take(end).await.ok().map(|()| Instant::now()) })
        });
        let mut all = Vec::new();
        for wait in waits.collect::<Vec<_>>() {
            let tenths = |at: Instant| u64::try_from((at - begun).as_millis()).unwrap_or(u64::MAX).div_ceil(100);
            all.push(wait.await.unwrap().map(tenths));
        }
        all
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_callers_go_one_by_one_after_a_pause() {
        let budget = Budget::new(Rates { most: 10.0, least: 0.5, burst: 1.0 });
        let begun = Instant::now();
        let throttling = async {
            sleep_until(begun + Duration::from_millis(50)).await;
            budget.throttled(Some(Duration::from_secs(3)));
        };
        let (served, ()) = tokio::join!(served(&budget, 5, Duration::from_secs(60), begun), throttling);
        assert_eq!(served, [0, 33, 35, 37, 39].map(Some), "half as fast as before");
    }

    #[tokio::test(start_paused = true)]
    async fn caller_fails_immediately_when_deadline_cannot_be_met() {
        let budget = Budget::new(Rates { most: 10.0, least: 0.5, burst: 1.0 });
        let begun = Instant::now();
        assert_eq!(
            served(&budget, 5, Duration::from_millis(250), begun).await,
            [Some(0), Some(1), Some(2), None, None]
        );
        assert!(begun.elapsed() < Duration::from_millis(250));
        assert_eq!(served(&budget, 1, Duration::from_secs(1), Instant::now()).await, [Some(1)]);
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_caller_leaves_the_queue() {
        let budget = Budget::new(Rates { most: 1.0, least: 0.5, burst: 1.0 });
        let begun = Instant::now();
        let end = begun + Duration::from_secs(100);
        budget.take(end).await.unwrap();
        let many = futures_of(&budget, 20, end);
        drop(many);
        assert_eq!(served(&budget, 1, Duration::from_secs(2), begun).await, [Some(10)]);
    }

    /// Callers in line that are dropped together.
    fn futures_of(budget: &Budget, count: usize, end: Instant) -> Vec<impl Future<Output = Result<(), Duration>>> {
        let mut all: Vec<_> = (0..count).map(|_| Box::pin(budget.take(end))).collect();
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        for one in &mut all {
            assert!(one.as_mut().poll(&mut context).is_pending());
        }
        all
    }
}
