//! What a program loses to the machine: a test that measures how soon something is done takes it off.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long the threads of a process that live, and this one, waited for a processor so far.
#[must_use]
pub fn kept_waiting(process: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let all = threads.map(|thread| thread.path()).chain([PathBuf::from("/proc/thread-self")]);
    all.map(|thread| waited(&thread)).sum()
}

fn waited(thread: &Path) -> Duration {
    // On a processor, waiting for one (both in nanoseconds), how often.
    let said = fs::read_to_string(thread.join("schedstat")).unwrap_or_default();
    Duration::from_nanos(said.split_whitespace().nth(1).and_then(|nanos| nanos.parse().ok()).unwrap_or(0))
}
