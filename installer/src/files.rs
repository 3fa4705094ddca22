//! Files and directories of the host, and how this crate reads and replaces them.

use std::path::{Path, PathBuf};
use std::{fs, io};

mod atomic_file;
mod contents;
mod identity;
mod lock;

pub(crate) use atomic_file::{create_directory, is_temporary, read_document, remove, replace, write_document};
pub(crate) use contents::{MAX_CONFIGURATION, irregular, is_damaged, is_our_plugin, open_file, same_contents};
pub use identity::Snapshot;
pub(crate) use lock::lock_out_installers;

/// The paths in a directory, sorted by name; none if it does not exist.
pub(crate) fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut paths: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    paths.sort();
    Ok(paths)
}

/// A path's last part. A runtime loads a name that is not UTF-8, too.
pub(crate) fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
