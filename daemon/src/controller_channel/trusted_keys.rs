//! The controllers' keys, from the directory in which the kubelet keeps a ConfigMap up to date.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use channel::{Fingerprint, TrustedKeys};
use tokio::time::sleep;

/// More replicas than a controller has, terminating ones included.
const MAX_KEYS: usize = 256;

/// A fingerprint has 71 characters.
const MAX_FINGERPRINT: u64 = 128;

/// The interval at which the directory is read: a new leader's key counts that soon after the kubelet has written it.
const EVERY: Duration = Duration::from_secs(5);

/// The keys, kept up to date by [`Self::run`]. A handshake reads no file, because a stranger can start one.
#[derive(Clone, Debug, Default)]
pub(super) struct ControllerKeys(Arc<RwLock<BTreeSet<Fingerprint>>>);

impl ControllerKeys {
    pub(super) fn trusted(&self) -> TrustedKeys {
        let keys = self.0.clone();
        Arc::new(move || keys.read().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Reads the directory again and again.
    pub(super) async fn run(self, directory: PathBuf) {
        loop {
            let directory = directory.clone();
            if let Ok(keys) = tokio::task::spawn_blocking(move || read(&directory)).await {
                *self.0.write().unwrap_or_else(PoisonError::into_inner) = keys;
            }
            sleep(EVERY).await;
        }
    }
}

/// The fingerprints in a directory. A file that has none is skipped, so that one bad entry does not lock every controller out.
fn read(directory: &Path) -> BTreeSet<Fingerprint> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    // Names that begin with a dot are the kubelet's own.
    let files = entries.filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
    files.take(MAX_KEYS).filter_map(|entry| fingerprint(&entry.path())).collect()
}

fn fingerprint(path: &Path) -> Option<Fingerprint> {
    let mut text = String::new();
    fs::File::open(path).ok()?.take(MAX_FINGERPRINT).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_entries_do_not_hide_good_ones() {
        let directory = tempfile::tempdir().unwrap();
        let key = Fingerprint::of(b"key");
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        assert_eq!(read(directory.path()), BTreeSet::new());
        write("controller-a", &format!("{key}\n"));
        write("controller-b", "not a key");
        write("controller-c", &"x".repeat(100_000));
        write(".hidden", &Fingerprint::of(b"hidden").to_string());
        fs::create_dir(directory.path().join("folder")).unwrap();
        assert_eq!(read(directory.path()), BTreeSet::from([key]));
        assert_eq!(read(Path::new("/nonexistent")), BTreeSet::new());
    }
}
