//! State files: whole or old, never half.

use std::fs::{File, OpenOptions, rename};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Replaces `path` by `content`: temporary file in the same directory, fsync, rename, fsync of the directory.
/// The caller holds whatever lock makes it the only writer. On tmpfs the fsyncs cost nothing.
///
/// # Errors
/// Any of the system calls; `path` then holds what it held before.
pub fn write_atomically(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(content)?;
    file.sync_data()?;
    rename(&temporary, path)?;
    match path.parent() {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}
