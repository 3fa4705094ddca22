//! Reports of attempts, for metrics.

use std::time::Duration;

use crate::error::Kind;

/// A finished attempt, even if it ended before the request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Oracle's name of the operation, for example `AttachVnic`.
    pub operation: &'static str,
    /// The HTTP status; `None` where there was no answer.
    pub status: Option<u16>,
    /// The kind of its failure, where it failed. Without a status, `Throttled` means that the budget had no room, and `Login`
    /// that the login failed: the request was not sent.
    pub failure: Option<Kind>,
    /// How long it took, waits for the budget not included.
    pub took: Duration,
}

/// Receives every attempt. Must return at once.
pub trait Observer: Send + Sync {
    /// An attempt has ended.
    fn attempted(&self, attempt: Attempt);
}
