//! One installer at a time: a lock on the runtime's directories themselves, so that it leaves no file behind and ends with
//! its process. The temporary files that the holder of the lock finds are left over from a killed installer.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// An installation takes a second or two.
const WAIT: Duration = Duration::from_secs(10);
const POLL_EVERY: Duration = Duration::from_millis(20);

/// Locked directories, until dropped.
#[derive(Debug)]
pub(crate) struct InstallerLock {
    _locks: Vec<File>,
}

impl InstallerLock {
    /// Locks those of the directories that exist; `None` if another installer holds one for too long, or one cannot be locked.
    pub(crate) fn acquire(directories: &[PathBuf]) -> Option<Self> {
        let end = Instant::now() + WAIT;
        let existing = directories.iter().filter(|directory| directory.exists());
        let locks = existing.map(|directory| lock(directory, end)).collect::<Option<_>>()?;
        Some(Self { _locks: locks })
    }
}

/// Closing the file unlocks it.
fn lock(directory: &Path, end: Instant) -> Option<File> {
    let file = File::open(directory).ok()?;
    loop {
        match file.try_lock() {
            Ok(()) => return Some(file),
            Err(TryLockError::WouldBlock) if Instant::now() < end => thread::sleep(POLL_EVERY),
            Err(_) => return None,
        }
    }
}
