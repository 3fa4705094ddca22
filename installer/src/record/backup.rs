//! Foreign files that had the names of our files: one copy each, restored when our file is removed.
//!
//! A copy's name says whose it was (`1000.1000.vcn-native`) and its mode is the file's, so that no record is needed to give it
//! back.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::files::{Owner, copy, irregular, open_file, remove};

/// The copies' directory, in the data directory.
pub(crate) const DIRECTORY: &str = "before";

/// The largest file that is copied, in bytes: several times the largest plugin. A larger one could fill the disk.
const LARGEST: u64 = 256 << 20;

/// A copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Backup {
    path: PathBuf,
    owner: Owner,
}

impl Backup {
    /// The copy for a file's name, if there is one.
    pub(crate) fn find(data_dir: &Path, name: &str) -> Option<Self> {
        all(data_dir).into_iter().find_map(|(found, backup)| (found == name).then_some(backup))
    }

    /// Copies a file, in place of an earlier copy. Nothing to copy is no error.
    pub(crate) fn make(path: &Path, name: &str, data_dir: &Path) -> Result<(), Error> {
        let read = |source| Error::Read { path: path.to_owned(), source };
        let directory = data_dir.join(DIRECTORY);
        let metadata = match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.map_err(read)?,
        };
        let created = fs::create_dir_all(&directory);
        created.map_err(|source| Error::Place { target: directory.clone(), action: "creating it", source })?;
        let copied = directory.join(format!("{}.{}.{name}", metadata.uid(), metadata.gid()));
        // Of another owner.
        if let Some(earlier) = Self::find(data_dir, name).filter(|earlier| earlier.path != copied) {
            earlier.remove()?;
        }
        let file = open_file(path).map_err(read)?;
        let metadata = file.metadata().map_err(read)?;
        if !metadata.is_file() {
            return Err(Error::InTheWay { path: path.to_owned(), reason: irregular(path) });
        }
        if metadata.len() > LARGEST {
            let reason = format!("it is larger than {} MiB, too large to be kept; move it away", LARGEST >> 20);
            return Err(Error::InTheWay { path: path.to_owned(), reason });
        }
        copy(&copied, file.take(LARGEST), metadata.permissions().mode() & 0o7777, None)
    }

    /// Puts the file back, with its contents, mode and owner.
    pub(crate) fn restore(&self, target: &Path) -> Result<(), Error> {
        let read = |source| Error::Read { path: self.path.clone(), source };
        // Release 0.2.0 replaced links, too.
        if let Ok(to) = fs::read_link(&self.path) {
            let failed = |source| Error::Place { target: target.to_owned(), action: "making it a link again", source };
            return remove(target).and_then(|()| symlink(to, target).map_err(failed));
        }
        let file = open_file(&self.path).map_err(read)?;
        let mode = file.metadata().map_err(read)?.permissions().mode() & 0o7777;
        copy(target, file, mode, Some(self.owner))
    }

    /// Removes the copy.
    pub(crate) fn remove(&self) -> Result<(), Error> {
        remove(&self.path)
    }
}

/// All copies, with the names of the files that they are of.
pub(crate) fn all(data_dir: &Path) -> Vec<(String, Backup)> {
    let entries = fs::read_dir(data_dir.join(DIRECTORY)).into_iter().flatten().flatten();
    let mut copies: Vec<_> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let mut parts = name.splitn(3, '.');
            let owner = Owner { user: parts.next()?.parse().ok()?, group: parts.next()?.parse().ok()? };
            Some((parts.next()?.to_owned(), Backup { path: entry.path(), owner }))
        })
        .collect();
    copies.sort_by(|(one, _), (other, _)| one.cmp(other));
    copies
}
