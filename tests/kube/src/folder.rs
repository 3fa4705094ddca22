//! The folder of one server: keys, etcd's data, logs. It goes with its owner; one whose owner was killed goes when the next
//! server starts.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::error::{During, Result};

const PREFIX: &str = "oke-kube-harness.";
const LOCK: &str = "lock";
/// What it is called until it is locked.
const UNLOCKED: &str = "lock.new";

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
        Ok(Self { _lock: locked(folder.path()).during(doing)?, folder })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Its lock is there only when it is locked: whoever removes the dead meanwhile would take one that is not for a dead one's.
fn locked(folder: &Path) -> io::Result<File> {
    let (new, path) = (folder.join(UNLOCKED), folder.join(LOCK));
    let lock = File::create(&new)?;
    lock.lock()?;
    fs::rename(new, path)?;
    Ok(lock)
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
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_folder_that_is_being_made_is_never_taken_for_a_dead_ones() {
        let parent = TempDir::new().unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    remove_dead(parent.path());
                }
            });
            for _ in 0..2000 {
                let folder = Folder::new(parent.path()).map(|folder| folder.path().join(LOCK).exists());
                if !matches!(folder, Ok(true)) {
                    done.store(true, Ordering::Relaxed);
                    panic!("{folder:?}");
                }
            }
            done.store(true, Ordering::Relaxed);
        });
    }

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
