//! Whoever counts what is asked of the API, for metrics.

use std::time::Duration;

use crate::error::Kind;

/// One attempt that has ended, be it before anything was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The operation as Oracle names it, for example `AttachVnic`.
    pub operation: &'static str,
    /// The HTTP status; `None` where there was no answer.
    pub status: Option<u16>,
    /// What it means, where it failed. Without a status, `Throttled` says that the budget had no room and `Login` that nobody
    /// could log in: nothing was sent.
    pub failure: Option<Kind>,
    /// How long it took, waits for the budget not included.
    pub took: Duration,
}

/// Is told of every attempt. Must return at once.
pub trait Observer: Send + Sync {
    /// An attempt has ended.
    fn attempted(&self, attempt: Attempt);
}
