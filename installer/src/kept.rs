//! Reads the installer's documents in the data directory.

use std::io;
use std::path::Path;

use serde::de::{DeserializeOwned, Error as _};

use crate::Error;

/// Reads a document; `None` where there is no file.
///
/// # Errors
/// [`Error::Record`] where it is damaged, or a link, a pipe, a device or a file too large for one of ours is in its place.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, Error> {
    let damaged = |source| Error::Record { path: path.to_owned(), source };
    match ipam::read_state(path) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(damaged),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(damaged(serde_json::Error::custom(error))),
        Err(source) => Err(Error::Read { path: path.to_owned(), source }),
    }
}
