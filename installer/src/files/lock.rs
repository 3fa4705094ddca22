//! One installer at a time: a lock on the runtime's directories themselves, so that it leaves no file behind and ends with
//! its process.

use std::fs::{File, TryLockError};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// An installation takes a second or two.
const WAIT: Duration = Duration::from_secs(10);
const POLL_EVERY: Duration = Duration::from_millis(20);

/// Locks those of the directories that exist, until the result is dropped; `None` if another installer holds one for too long,
/// or one cannot be locked.
pub(crate) fn lock_out_installers(directories: &[PathBuf]) -> Option<Vec<File>> {
    let end = Instant::now() + WAIT;
    let lock = |directory: &PathBuf| {
        let file = File::open(directory).ok()?;
        while let Err(error) = file.try_lock() {
            if !matches!(error, TryLockError::WouldBlock) || Instant::now() >= end {
                return None;
            }
            thread::sleep(POLL_EVERY);
        }
        Some(file)
    };
    directories.iter().filter(|directory| directory.exists()).map(lock).collect()
}
