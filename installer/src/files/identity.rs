//! Whether a file changed, without reading it: by device, inode, length, mode and times. The kernel sets the change time, and
//! no program can set it back.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
    mode: u32,
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// Several files at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    files: BTreeMap<PathBuf, Option<Identity>>,
}

impl Identity {
    /// The file at `path`, through links; `None` if there is none or it cannot be read.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().as_ref().map(Self::from)
    }
}

impl From<&Metadata> for Identity {
    fn from(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            mode: metadata.mode(),
            length: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl Snapshot {
    /// Adds a file, or every file of a directory.
    #[must_use]
    pub fn with(mut self, path: &Path) -> Self {
        match fs::read_dir(path) {
            Ok(entries) => {
                let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
                self.files.extend(paths.map(|path| (path.clone(), Identity::of(&path))));
            }
            Err(_) => {
                self.files.insert(path.to_owned(), Identity::of(path));
            }
        }
        self
    }
}
