//! How long and how often a question is asked.

use std::time::Duration;

use backoff::Backoff;

/// Limits of one question to the metadata service, all of its attempts together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The most time for one attempt, connecting and reading the reply included.
    pub timeout: Duration,
    /// The most attempts, at least one.
    pub attempts: u32,
    /// The backoff between attempts.
    pub backoff: Backoff,
    /// The most time for all attempts and backoffs together.
    pub deadline: Duration,
}

/// Oracle advises up to 3 retries, a 30 s timeout and exponential backoff; a node waits for this before its first pod,
/// so an attempt gets 5 s here (the service answers in milliseconds or not at all) and there are more of them.
impl Default for Policy {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(5),
            attempts: 6,
            backoff: Backoff { first: Duration::from_millis(250), cap: Duration::from_secs(8) },
            deadline: Duration::from_secs(30),
        }
    }
}
