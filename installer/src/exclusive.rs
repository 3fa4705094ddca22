//! One installer at a time, as far as that can be had: a lock on the runtime's directories themselves, so that no file is
//! left behind for it and it ends with whoever holds it. Whoever has it knows that temporary files are nobody's any more.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// An installation takes a second or two; one that hangs must not make the others hang. What they then do is safe without
/// the lock too: every file is replaced whole.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Locked directories, until dropped.
#[derive(Debug)]
pub(crate) struct Exclusive {
    _locks: Vec<File>,
}

impl Exclusive {
    /// Locks the directories that exist; `None` where another installer holds one for too long, or that cannot be told.
    pub(crate) fn over(directories: &[PathBuf]) -> Option<Self> {
        let end = Instant::now() + PATIENCE;
        let existing = directories.iter().filter(|directory| directory.exists());
        let locks = existing.map(|directory| lock(directory, end)).collect::<Option<_>>()?;
        Some(Self { _locks: locks })
    }
}

/// Unlocked by closing it, which cannot fail.
fn lock(directory: &Path, end: Instant) -> Option<File> {
    let file = File::open(directory).ok()?;
    loop {
        match file.try_lock() {
            Ok(()) => return Some(file),
            Err(TryLockError::WouldBlock) if Instant::now() < end => thread::sleep(LOOK_EVERY),
            Err(_) => return None,
        }
    }
}
