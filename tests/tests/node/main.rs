//! The real agent, plugin and installer on nodes of an emulated VCN, judged by packets.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, its helper functions too")]
#![expect(clippy::panic, reason = "likewise")]

mod main_job;
mod privileges;
mod return_paths;

use std::time::Duration;

use host_harness::within;

/// Far beyond what a condition takes; a guest without a CPU of its own is slow.
const DEADLINE: Duration = Duration::from_secs(90);

/// Whether the condition becomes true before the deadline.
fn becomes_true(condition: impl FnMut() -> bool) -> bool {
    within(DEADLINE, condition)
}

/// Waits for a condition.
#[track_caller]
fn wait_for(what: &str, condition: impl FnMut() -> bool) {
    assert!(becomes_true(condition), "not within {DEADLINE:?}: {what}");
}
