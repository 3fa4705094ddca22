//! Whether a file changed, without reading it: by device, inode, length, mode and times. The kernel sets the change time, and
//! no program can set it back.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Of a folder inside a directory. The configurations of a network are few.
const MAX_FILES: usize = 256;

/// A file at one moment: device, inode and length; mode; times of modification and change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity([u64; 3], u32, [i64; 4]);

/// Several files at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot(BTreeMap<PathBuf, Option<Identity>>);

impl Identity {
    /// The file at `path`, through links; `None` if there is none or it cannot be read.
    fn of(path: &Path) -> Option<Self> {
        let at = fs::metadata(path).ok()?;
        let times = [at.mtime(), at.mtime_nsec(), at.ctime(), at.ctime_nsec()];
        Some(Self([at.dev(), at.ino(), at.size()], at.mode(), times))
    }
}

impl Snapshot {
    /// Adds a file, or every file of a directory and of the folders in it. Links to folders are not followed: what they lead to may
    /// be large, or hang.
    #[must_use]
    pub fn with(mut self, path: &Path) -> Self {
        for path in paths(path).unwrap_or_else(|| vec![path.to_owned()]) {
            let is_folder = fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir());
            let inside = is_folder.then(|| paths(&path)).flatten().unwrap_or_default();
            let in_folder = inside.into_iter().take(MAX_FILES).chain([path]);
            self.0.extend(in_folder.map(|path| (path.clone(), Identity::of(&path))));
        }
        self
    }
}

/// The paths in a directory; none if it is none.
fn paths(directory: &Path) -> Option<Vec<PathBuf>> {
    Some(fs::read_dir(directory).ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect())
}
