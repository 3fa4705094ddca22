//! The planner by example, and pods' and the host's networks on a real kernel.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may fail by panicking, its helper functions too"
)]

mod golden;
mod host;
mod pods;
