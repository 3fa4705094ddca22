//! How long and how often a call is attempted.

use std::time::Duration;

use backoff::Backoff;

/// Limits of one call, all of its attempts together. A list is one call per page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The most time for one attempt, connecting and reading the answer included.
    pub timeout: Duration,
    /// The most attempts, at least one.
    pub attempts: u32,
    /// The backoff between them.
    pub backoff: Backoff,
    /// The most time for all attempts, backoffs and waits for the budget together.
    pub deadline: Duration,
}

/// Oracle's SDKs: eight attempts, doubling, 30 s at most. A minute in all, since a reconciler reports an error and retries
/// by itself.
impl Default for Policy {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(20),
            attempts: 8,
            backoff: Backoff { first: Duration::from_millis(500), cap: Duration::from_secs(30) },
            deadline: Duration::from_mins(1),
        }
    }
}
