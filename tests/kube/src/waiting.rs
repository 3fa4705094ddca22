//! Waiting for what an API server, or a program that watches it, does later.

use std::time::{Duration, Instant};

/// Far beyond what a condition takes on a busy machine.
const WITHIN: Duration = Duration::from_secs(240);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Tries until there is an outcome; panics when there is none in time.
pub async fn wait_for<T>(what: &str, outcome: impl AsyncFnMut() -> Option<T>) -> T {
    outcome_within(WITHIN, what, outcome).await
}

/// Waits until something is true; panics when it is not in time.
pub async fn wait_until(what: &str, condition: impl AsyncFnMut() -> bool) {
    wait_within(WITHIN, what, condition).await;
}

/// The same for so long.
pub async fn wait_within(most: Duration, what: &str, mut condition: impl AsyncFnMut() -> bool) {
    outcome_within(most, what, async || condition().await.then_some(())).await;
}

async fn outcome_within<T>(most: Duration, what: &str, mut outcome: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + most;
    loop {
        if let Some(found) = outcome().await {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {most:?}: {what}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
