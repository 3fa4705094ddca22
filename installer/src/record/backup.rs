//! Foreign files that had the names of our files: one copy each, restored when our file is removed.
//!
//! A copy's name says whose it was (`1000.1000.vcn-native`) and its mode is the file's, so that no record is needed to give it
//! back.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::files::{entries, is_damaged, name as file_name, open_file, remove, replace};

/// The copies' directory, in the data directory.
pub(crate) const DIRECTORY: &str = "before";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Backup {
    path: PathBuf,
    user: u32,
    group: u32,
}

impl Backup {
    pub(crate) fn find(data_dir: &Path, name: &str) -> Option<Self> {
        entries(&data_dir.join(DIRECTORY)).unwrap_or_default().into_iter().find_map(|path| {
            let found = file_name(&path);
            let mut parts = found.splitn(3, '.');
            let (user, group) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
            let is_copy =
                parts.next()? == name && !open_file(&path).and_then(|copy| is_damaged(copy, name)).unwrap_or(false);
            is_copy.then_some(Self { path, user, group })
        })
    }

    /// Copies a file, unless there is a copy: the first one is from before us. A missing file is not an error, nor is a damaged one:
    /// it is one of our files after a power cut.
    pub(crate) fn make(path: &Path, name: &str, data_dir: &Path) -> Result<(), Error> {
        let file = match open_file(path) {
            _ if Self::find(data_dir, name).is_some() => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.map_err(Error::reading(path))?,
        };
        if open_file(path).and_then(|file| is_damaged(file, name)).map_err(Error::reading(path))? {
            return Ok(());
        }
        let metadata = file.metadata().map_err(Error::reading(path))?;
        let copy = format!("{}.{}.{name}", metadata.uid(), metadata.gid());
        let mode = metadata.permissions().mode() & 0o7777;
        replace(&data_dir.join(DIRECTORY).join(copy), file, mode, |_| Ok(()))
    }

    /// Puts the file back, with its contents, mode and owner.
    pub(crate) fn restore(&self, target: &Path) -> Result<(), Error> {
        // Release 0.2.0 replaced links, too.
        if let Ok(to) = fs::read_link(&self.path) {
            remove(target)?;
            return symlink(to, target).map_err(Error::placing(target, "making it a link again"));
        }
        let file = open_file(&self.path).map_err(Error::reading(&self.path))?;
        let mode = file.metadata().map_err(Error::reading(&self.path))?.permissions().mode() & 0o7777;
        replace(target, file, mode, |written| {
            self.give(written, mode).map_err(Error::placing(target, "setting its owner"))
        })
    }

    fn give(&self, path: &Path, mode: u32) -> io::Result<()> {
        let now = fs::metadata(path)?;
        // The agent's container has no right to change owners, and mostly needs none.
        if (now.uid(), now.gid()) == (self.user, self.group) {
            return Ok(());
        }
        chown(path, Some(self.user), Some(self.group))?;
        // The kernel clears set-user-id and set-group-id when the owner changes. Without them the mode is right, and only its
        // new owner, or CAP_FOWNER, may set it.
        if mode & 0o6000 != 0 {
            fs::set_permissions(path, Permissions::from_mode(mode))?;
        }
        File::open(path)?.sync_all()
    }

    pub(crate) fn remove(&self) -> Result<(), Error> {
        remove(&self.path)
    }
}
