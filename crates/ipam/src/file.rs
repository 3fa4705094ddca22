//! State files: whole or old, never half.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, rename};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Replaces `path` by `content`: temporary file in the same directory, fsync, rename, fsync of the directory.
/// The caller holds whatever lock makes it the only writer. On tmpfs the fsyncs cost nothing.
///
/// # Errors
/// Any of the system calls; `path` then holds what it held before, and the temporary file is gone.
pub fn write_atomically(path: &Path, content: &[u8]) -> io::Result<()> {
    let temporary = beside(path, "new");
    write(&temporary, content)
        .and_then(|file| file.sync_data())
        .and_then(|()| rename(&temporary, path))
        .inspect_err(|_| drop(fs::remove_file(&temporary)))?;
    match path.parent() {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}

/// Writes a temporary file that a rename will put in its place. It is not synced to any disk: what is written so is void
/// after a crash of the machine anyway.
///
/// # Errors
/// Any of the system calls; there is then no such file.
pub(crate) fn stage(temporary: &Path, content: &[u8]) -> io::Result<()> {
    write(temporary, content).map(drop).inspect_err(|_| drop(fs::remove_file(temporary)))
}

/// `path` with a further extension.
pub(crate) fn beside(path: &Path, extension: impl AsRef<OsStr>) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".");
    beside.push(extension);
    beside.into()
}

fn write(path: &Path, content: &[u8]) -> io::Result<File> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    Ok(file)
}
