//! Replaces one file atomically: a reader sees the whole old file or the whole new one, also after a kill or a power cut, and
//! a process that runs the old file is not disturbed.

#[cfg(test)]
mod tests;

use std::fs::{self, File, Permissions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use ipam::AtomicFile;

use crate::error::Error;

/// No runtime takes such a name for a plugin or a configuration.
const PREFIX: &str = ".oke-cni-installer.";
const SUFFIX: &str = ".tmp";

/// Set-user-id and set-group-id.
const SET_ID: u32 = 0o6000;

/// A file's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) user: u32,
    pub(crate) group: u32,
}

/// Whether a name is one of our temporary files.
pub(crate) fn is_temporary(name: &str) -> bool {
    name.starts_with(PREFIX) && name.ends_with(SUFFIX)
}

/// Replaces a file. On success the target holds `contents` with `mode` and is on the disk; on failure it is unchanged.
pub(crate) fn write(target: &Path, contents: &[u8], mode: u32) -> Result<(), Error> {
    write_if(target, contents, mode, &|| Ok(()))
}

/// As [`write`], if `check` succeeds right before the rename.
pub(crate) fn write_if(
    target: &Path,
    contents: &[u8],
    mode: u32,
    check: &dyn Fn() -> Result<(), Error>,
) -> Result<(), Error> {
    replace(target, &mut &contents[..], mode, None, check)
}

/// Copies a file of any size piece by piece. Without `owner` the copy belongs to this process.
pub(crate) fn copy(target: &Path, mut from: impl Read, mode: u32, owner: Option<Owner>) -> Result<(), Error> {
    replace(target, &mut from, mode, owner, &|| Ok(()))
}

fn replace(
    target: &Path,
    contents: &mut dyn Read,
    mode: u32,
    owner: Option<Owner>,
    check: &dyn Fn() -> Result<(), Error>,
) -> Result<(), Error> {
    let failed = |action| move |source| Error::Place { target: target.to_path_buf(), action, source };
    let temporary = target.with_file_name(temporary_name());
    let file = AtomicFile::create_as(target, temporary, mode);
    let mut file = file.map_err(failed("creating a temporary file next to it"))?;
    io::copy(contents, &mut file).map_err(failed("writing"))?;
    let written = file.close().map_err(failed("flushing it to disk"))?;
    if let Some(owner) = owner {
        give(written, owner, mode).map_err(failed("setting its owner"))?;
    }
    check()?;
    file.commit().map_err(failed("renaming it"))
}

fn give(path: &Path, owner: Owner, mode: u32) -> io::Result<()> {
    let now = fs::metadata(path)?;
    // The agent's container has no right to change owners, and mostly needs none.
    if (now.uid(), now.gid()) == (owner.user, owner.group) {
        return Ok(());
    }
    chown(path, Some(owner.user), Some(owner.group))?;
    // The kernel clears these when the owner changes.
    if mode & SET_ID != 0 {
        fs::set_permissions(path, Permissions::from_mode(mode))?;
    }
    File::open(path)?.sync_all()
}

/// A process id would not be unique: two installers may live in different PID namespaces.
fn temporary_name() -> String {
    format!("{PREFIX}{:016x}{SUFFIX}", RandomState::new().build_hasher().finish())
}
