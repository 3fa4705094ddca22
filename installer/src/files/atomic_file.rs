//! Replaces one file atomically: a reader sees the whole old file or the whole new one, also after a kill or a power cut, and
//! a process that runs the old file is not disturbed.

#[cfg(test)]
mod tests;

use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read};
use std::path::Path;

use ipam::AtomicFile;

use crate::error::Error;

/// No runtime takes such a name for a plugin or a configuration.
const PREFIX: &str = ".oke-cni-installer.";
const SUFFIX: &str = ".tmp";

pub(crate) fn is_temporary(name: &str) -> bool {
    name.starts_with(PREFIX) && name.ends_with(SUFFIX)
}

/// Replaces a file and, if necessary, creates its directory. On success the target holds `contents` with `mode` and is on the disk; on failure it is unchanged. `last`
/// is done right before the rename, with the temporary file, and prevents it by an error.
pub(crate) fn replace(
    target: &Path,
    mut contents: impl Read,
    mode: u32,
    last: impl FnOnce(&Path) -> Result<(), Error>,
) -> Result<(), Error> {
    let failed = |action| Error::placing(target, action);
    // A process id would not be unique: two installers may live in different PID namespaces.
    let random = RandomState::new().build_hasher().finish();
    let temporary = target.with_file_name(format!("{PREFIX}{random:016x}{SUFFIX}"));
    target.parent().map_or(Ok(()), fs::create_dir_all).map_err(failed("creating its directory"))?;
    let file = AtomicFile::create_as(target, temporary, mode);
    let mut file = file.map_err(failed("creating a temporary file next to it"))?;
    io::copy(&mut contents, &mut file).map_err(failed("writing"))?;
    last(file.close().map_err(failed("flushing it to disk"))?)?;
    file.commit().map_err(failed("renaming it"))
}
