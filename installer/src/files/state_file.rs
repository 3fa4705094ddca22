//! JSON documents in the data directory: read, written whole, removed.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use serde::Serialize;
use serde::de::{DeserializeOwned, Error as _};

use crate::error::Error;

/// Reads a document; `None` if there is no file.
///
/// # Errors
/// [`Error::Record`] if it is damaged, or if a link, a pipe, a device or an oversized file has its name.
pub(crate) fn read_document<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, Error> {
    let damaged = |source| Error::Record { path: path.to_owned(), source };
    match ipam::read_state(path) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(damaged),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(damaged(serde_json::Error::custom(error))),
        Err(error) => Err(Error::reading(path)(error)),
    }
}

/// Writes a document and, if necessary, creates its directory.
pub(crate) fn write_document(path: &Path, document: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(document);
    let text = text.map_err(|source| Error::Record { path: path.to_owned(), source })?;
    if let Some(directory) = path.parent() {
        let created = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        created.map_err(Error::placing(path, "creating its directory"))?;
    }
    // Not as one of our temporary files, which another installer removes: the agent notes kernel settings without the lock.
    let written = ipam::write_atomically(path, format!("{text}\n").as_bytes());
    written.map_err(Error::placing(path, "writing"))
}

/// Removes a file or link; one that is gone already is no error.
pub(crate) fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(|source| Error::Remove { path: path.to_owned(), source }),
    }
}
