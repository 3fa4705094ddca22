//! The times that go with what was read: what a list lacks means something only beside them.

use std::time::Duration;

use tokio::time::Instant;

/// When something was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moments {
    /// When it was asked for: what it lacks may have come since.
    pub(super) asked: Instant,
    /// When it was there.
    pub(super) now: Instant,
    /// For how long something must have been missing from lists until it is certain that it is not there.
    pub(super) proof: Duration,
}
