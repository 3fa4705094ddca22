//! Locks that the kernel releases when their file is closed, also by kill −9. Every wait has a deadline: a stopped holder must
//! not stop the node's pods.

use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::fcntl::OFlag;

use crate::{Error, file};

/// Locks a file as a whole.
pub(super) fn whole(path: &Path, patience: Duration) -> Result<File, Error> {
    let wrap = |source| Error::Lock { path: path.to_owned(), source };
    let file = open(path).map_err(wrap)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => within(patience, move || file.lock().map(|()| file)).map_err(wrap),
        Err(TryLockError::Error(error)) => Err(wrap(error)),
    }
}

/// Opens a lock file. The agent makes the directory; a DEL must not depend on it.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let open = || file::open(path, OFlag::O_WRONLY | OFlag::O_CREAT);
    match (open(), path.parent()) {
        (Err(error), Some(directory)) if error.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
            open()
        }
        (opened, _) => opened,
    }
}

/// Waits for `locked`. Waiting in the kernel is fairer than polling but has no deadline, so another thread waits there.
pub(super) fn within(
    patience: Duration,
    locked: impl FnOnce() -> io::Result<File> + Send + 'static,
) -> io::Result<File> {
    let (sender, outcome) = mpsc::channel();
    thread::Builder::new().spawn(move || sender.send(locked()))?;
    outcome.recv_timeout(patience).unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}
