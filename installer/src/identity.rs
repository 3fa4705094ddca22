//! Whether files are those that were looked at before, without reading them: by device, inode, length and times. The change
//! time is the kernel's own, nobody can set it back.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file, as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    device: u64,
    inode: u64,
    mode: u32,
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// Files, as they are at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    files: BTreeMap<PathBuf, Option<Identity>>,
}

impl Identity {
    /// The file at `path`, through links; nothing where there is none or it cannot be asked.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
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
    /// A file, or every file of a directory (the directory's own times change with those of others, so they do not count).
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn whatever_is_done_to_a_file_shows() {
        let directory = tempfile::tempdir().unwrap();
        let (file, other) = (directory.path().join("file"), directory.path().join("other"));
        fs::write(&file, "one").unwrap();
        let look = || Snapshot::default().with(directory.path()).with(&other);
        let mut before = look();
        assert_eq!(look(), before);
        let mut shows = |what: &str, change: &dyn Fn()| {
            change();
            assert_ne!(look(), before, "{what}");
            before = look();
        };
        shows("other content of the same length", &|| fs::write(&file, "two").unwrap());
        shows("another mode", &|| fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap());
        shows("a copy in its place", &|| {
            fs::copy(&file, &other).unwrap();
            fs::rename(&other, &file).unwrap();
        });
        shows("a file more", &|| fs::write(&other, "").unwrap());
        shows("a link that leads elsewhere", &|| {
            fs::remove_file(&other).unwrap();
            std::os::unix::fs::symlink(&file, &other).unwrap();
        });
        shows("a file less", &|| fs::remove_file(&file).unwrap());
    }
}
