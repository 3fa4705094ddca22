//! The real agent, plugin and installer on nodes of an emulated VCN, judged by packets.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, its helper functions too")]
#![expect(clippy::panic, reason = "likewise")]

mod main_job;
mod privileges;
mod return_paths;

use std::thread;
use std::time::{Duration, Instant};

/// Far beyond what a condition takes; a guest without a CPU of its own is slow.
const DEADLINE: Duration = Duration::from_secs(90);

/// Whether the condition becomes true before the deadline.
fn becomes_true(mut condition: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    while !condition() {
        if started.elapsed() > DEADLINE {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
    true
}

/// Waits for a condition.
#[track_caller]
fn wait_for(what: &str, condition: impl FnMut() -> bool) {
    assert!(becomes_true(condition), "not within {DEADLINE:?}: {what}");
}
