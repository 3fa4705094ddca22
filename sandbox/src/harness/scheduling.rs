//! The time that a process waits for a processor: a test that measures a promise on time subtracts it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long the live threads of a process, and this one, have waited for a processor so far.
pub fn kept_waiting(process: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let all = threads.map(|thread| thread.path()).chain([PathBuf::from("/proc/thread-self")]);
    all.map(|thread| waited(&thread)).sum()
}

fn waited(thread: &Path) -> Duration {
    // On a processor, waiting for one (both in nanoseconds), how often.
    let schedstat = fs::read_to_string(thread.join("schedstat")).unwrap_or_default();
    Duration::from_nanos(schedstat.split_whitespace().nth(1).and_then(|nanos| nanos.parse().ok()).unwrap_or(0))
}
