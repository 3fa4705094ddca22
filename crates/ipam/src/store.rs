//! allocations.json on disk: read, change and replace under one lock, and nothing else under it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::{Allocations, BootId, Error, write_atomically};

const FILE: &str = "allocations.json";
const LOCK: &str = "allocations.lock";

/// The allocations of a node.
#[derive(Clone, Debug)]
pub struct Store {
    path: PathBuf,
    lock: PathBuf,
    boot: BootId,
}

impl Store {
    /// The store in `state_dir`, in this boot. Touches nothing yet.
    #[must_use]
    pub fn new(state_dir: &Path, boot: BootId) -> Self {
        Self { path: state_dir.join(FILE), lock: state_dir.join(LOCK), boot }
    }

    /// What is handed out. Needs no lock: the file is replaced whole.
    ///
    /// # Errors
    /// Unreadable, damaged or too new; a missing file is no error.
    pub fn read(&self) -> Result<Allocations, Error> {
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Allocations::none(self.boot.clone())),
            Err(source) => return Err(Error::Read { path: self.path.clone(), source }),
        };
        let found: Allocations =
            serde_json::from_slice(&bytes).map_err(|source| Error::Damaged { path: self.path.clone(), source })?;
        if found.version > Allocations::VERSION {
            return Err(Error::TooNew { path: self.path.clone(), found: found.version, known: Allocations::VERSION });
        }
        // Pods do not survive a reboot, and neither does what they held.
        Ok(if found.boot_id == self.boot { found } else { Allocations::none(self.boot.clone()) })
    }

    /// Changes the allocations under the lock; the file is written only when `change` succeeds and changed something.
    ///
    /// # Errors
    /// What `change` answers, or the file's own troubles; the file then holds what it held before.
    pub fn update<T, E: From<Error>>(&self, change: impl FnOnce(&mut Allocations) -> Result<T, E>) -> Result<T, E> {
        let _lock = self.lock()?;
        let before = self.read()?;
        let mut after = before.clone();
        let answer = change(&mut after)?;
        if after != before {
            let wrap = |source: io::Error| Error::Write { path: self.path.clone(), source };
            let bytes = serde_json::to_vec(&after).map_err(|error| wrap(error.into()))?;
            write_atomically(&self.path, &bytes).map_err(wrap)?;
        }
        Ok(answer)
    }

    /// Freed when the file is closed, so also by kill −9.
    fn lock(&self) -> Result<File, Error> {
        let wrap = |source| Error::Lock { path: self.lock.clone(), source };
        let open = || OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&self.lock);
        let file = match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // The agent makes the directory; a DEL must not depend on it.
                self.lock.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| open()).map_err(wrap)?
            }
            other => other.map_err(wrap)?,
        };
        file.lock().map_err(wrap)?;
        Ok(file)
    }
}
