//! Replaces one file atomically, of any kind or a JSON document. A reader sees the whole old file or the whole new one, also
//! after a kill or a power cut. A process that runs the old file is not disturbed.

#[cfg(test)]
mod tests;

use std::fs::{self, DirBuilder};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use ipam::AtomicFile;
use serde::Serialize;
use serde::de::{DeserializeOwned, Error as _};

use crate::error::Error;
use crate::files::name;

/// No runtime takes such a name for a plugin or a configuration.
const PREFIX: &str = ".oke-cni-installer.";
const SUFFIX: &str = ".tmp";

/// Whether it is the name of a temporary file of this program; release 0.2.0 chose random ones.
pub(crate) fn is_temporary(name: &str) -> bool {
    name.starts_with(PREFIX) && name.ends_with(SUFFIX)
}

/// Creates a directory of the runtime, if necessary.
pub(crate) fn create_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(path)
}

/// Replaces a file and, if necessary, creates its directory. On success the target holds `contents` with `mode` and is on the
/// disk; on failure it is unchanged. `last` is done right before the rename, with the temporary file, and prevents it by an
/// error.
pub(crate) fn replace(
    target: &Path,
    mut contents: impl Read,
    mode: u32,
    last: impl FnOnce(&Path) -> Result<(), Error>,
) -> Result<(), Error> {
    let failed = |action| Error::placing(target, action);
    // One for each target, because installers lock each other out. One that a killed installer left behind is replaced.
    let temporary = target.with_file_name(format!("{PREFIX}{}{SUFFIX}", name(target)));
    target.parent().map_or(Ok(()), create_directory).map_err(failed("creating its directory"))?;
    let file = AtomicFile::create_as(target, temporary, mode);
    let mut file = file.map_err(failed("creating a temporary file next to it"))?;
    io::copy(&mut contents, &mut file).map_err(failed("writing"))?;
    last(file.close().map_err(failed("flushing it to disk"))?)?;
    file.commit().map_err(failed("renaming it"))
}

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

/// Removes a file or link; one that is gone already is not an error.
pub(crate) fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(|source| Error::Remove { path: path.to_owned(), source }),
    }
}
