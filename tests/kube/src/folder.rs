//! The folder of one server: keys, etcd's data, logs. It goes with its owner; one whose owner was killed goes when the next
//! server starts.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::error::{During, Result};

const PREFIX: &str = "oke-kube-harness.";
const LOCK: &str = "lock";

/// A folder of this process's own.
#[derive(Debug)]
pub(crate) struct Folder {
    folder: TempDir,
    /// Locked as long as the owner lives, however it ends.
    _lock: File,
}

impl Folder {
    /// Where it is best. In the fresh namespaces of tests/runner /run is memory, and goes with them.
    pub(crate) fn default_parent() -> PathBuf {
        match std::env::var_os("OKE_TEST_ISOLATED") {
            Some(_) => PathBuf::from("/run"),
            None => std::env::temp_dir(),
        }
    }

    pub(crate) fn new(parent: &Path) -> Result<Self> {
        remove_dead(parent);
        let doing = || format!("make a folder in {}", parent.display());
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent).during(doing)?;
        let lock = File::create(folder.path().join(LOCK)).during(doing)?;
        lock.lock().during(doing)?;
        Ok(Self { folder, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes the folders that nobody holds any more. Somebody else's are passed over.
fn remove_dead(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        // One without a lock is being made right now.
        let dead = || File::open(entry.path().join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok());
        if ours && dead() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_owners_folder_goes_and_a_living_ones_stays() {
        let parent = TempDir::new().unwrap();
        let make = |name: &str, lock: bool| {
            let folder = parent.path().join(format!("{PREFIX}{name}"));
            fs::create_dir(&folder).unwrap();
            lock.then(|| File::create(folder.join(LOCK)).unwrap())
        };
        make("dead", true);
        make("being-made", false);
        let living = make("living", true).unwrap();
        living.lock().unwrap();
        fs::create_dir(parent.path().join("another")).unwrap();
        remove_dead(parent.path());
        let mut left: Vec<String> =
            fs::read_dir(parent.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        assert_eq!(left, ["another", "oke-kube-harness.being-made", "oke-kube-harness.living"]);
    }
}
