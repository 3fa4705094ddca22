//! What a source said last, in a file that outlives a boot: an agent that starts while the source does not answer uses it.
//! All cached copies have this format and one writer, the source poller. A lost or damaged copy is replaced by the next answer.

#[cfg(test)]
mod tests;

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ipam::{BootId, read_state, write_atomically};
use resident::logging::chain;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

const VERSION: u32 = 1;

/// How far the time in the file may lag behind while the answer stays the same: spares the disk.
const REFRESH: Duration = Duration::from_hours(1);

/// A file that holds the last answer of a source.
#[derive(Debug)]
pub(crate) struct CachedCopy {
    path: PathBuf,
    /// What the file holds, as far as this process wrote it.
    written: Option<WrittenCopy>,
}

/// The last answer of a source.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CachedAnswer<T> {
    version: u32,
    /// When the source confirmed it last, by the wall clock; up to [`REFRESH`] too early.
    pub as_of_unix_millis: u64,
    /// The boot in which it did.
    pub boot_id: Option<BootId>,
    pub value: T,
}

#[derive(Debug)]
struct WrittenCopy {
    digest: u64,
    as_of: SystemTime,
}

impl<T> CachedAnswer<T> {
    /// How old it is; zero if the clock was set back.
    pub(crate) fn age(&self, now: SystemTime) -> Duration {
        now.duration_since(UNIX_EPOCH + Duration::from_millis(self.as_of_unix_millis)).unwrap_or_default()
    }
}

impl CachedCopy {
    /// The file of that name in a directory that outlives a boot.
    pub(crate) fn new(data_dir: &Path, name: &str) -> Self {
        Self { path: data_dir.join(name), written: None }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the copy; `None` if there is none.
    /// An error if it cannot be read, is damaged, or has a newer format.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> io::Result<Option<CachedAnswer<T>>> {
        let bytes = match read_state(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read?,
        };
        let answer: CachedAnswer<T> = serde_json::from_slice(&bytes)?;
        if answer.version > VERSION {
            let message = format!("format version {}, this build reads up to {VERSION}", answer.version);
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        Ok(Some(answer))
    }

    /// Makes the file hold `value`, confirmed at `as_of`; `None` removes it. Writes only if the answer changed or its time is
    /// off by an hour. A failed write is retried by the next call.
    /// After an error the file is as it was.
    pub(crate) fn store<T: Serialize + ?Sized>(&mut self, value: Option<&T>, as_of: SystemTime) -> Result<(), String> {
        let failed =
            |operation: &str, error: &io::Error| format!("{operation} {}: {}", self.path.display(), chain(error));
        let Some(value) = value else {
            self.written = None;
            return match fs::remove_file(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("removing", &error)),
                _ => Ok(()),
            };
        };
        let (version, boot_id) = (VERSION, BootId::current().ok());
        let since_1970 = as_of.duration_since(UNIX_EPOCH).unwrap_or_default();
        let as_of_unix_millis = u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX);
        let write = || {
            let digest = digest(&serde_json::to_vec(value)?);
            if self.written.as_ref().is_none_or(|written| !written.covers(digest, as_of)) {
                let answer = CachedAnswer { version, as_of_unix_millis, boot_id, value };
                write_atomically(&self.path, &serde_json::to_vec(&answer)?)?;
                return Ok(Some(WrittenCopy { digest, as_of }));
            }
            Ok(None)
        };
        let written = write().map_err(|error: io::Error| failed("writing", &error))?;
        self.written = written.or_else(|| self.written.take());
        Ok(())
    }
}

impl WrittenCopy {
    /// Whether the file may stay as it is. A clock that was set back would make it look new for as long.
    fn covers(&self, digest: u64, as_of: SystemTime) -> bool {
        let apart = as_of.duration_since(self.as_of).unwrap_or_else(|error| error.duration());
        self.digest == digest && apart < REFRESH
    }
}

fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}
