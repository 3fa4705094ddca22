//! Replaces one file atomically: a reader sees the whole old file or the whole new one, also after a kill or a power cut, and
//! a process that runs the old file is not disturbed.

#[cfg(test)]
mod tests;

use std::fs::{self, File, OpenOptions, Permissions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown, symlink};
use std::path::{Path, PathBuf};

use crate::Error;

/// No runtime takes such a name for a plugin or a configuration.
const PREFIX: &str = ".oke-cni-installer.";
const SUFFIX: &str = ".tmp";

/// Set-user-id and set-group-id.
const SET_ID: u32 = 0o6000;

/// An installer removes the temporary files that it finds, also one of the agent's, which notes kernel settings without the lock.
const ATTEMPTS: usize = 5;

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
    let removed =
        |error: &Error| matches!(error, Error::Place { source, .. } if source.kind() == io::ErrorKind::NotFound);
    let mut attempts = 1;
    loop {
        match replace(target, &mut &contents[..], (mode, None), check) {
            Err(error) if removed(&error) && attempts < ATTEMPTS => attempts += 1,
            other => return other,
        }
    }
}

/// Copies a file of any size piece by piece. Without `owner` the copy belongs to this process.
pub(crate) fn copy(target: &Path, mut from: impl Read, mode: u32, owner: Option<Owner>) -> Result<(), Error> {
    replace(target, &mut from, (mode, owner), &|| Ok(()))
}

/// Replaces a file with a symbolic link to `to`.
pub(crate) fn write_link(target: &Path, to: &Path) -> Result<(), Error> {
    let failed = |action| move |source| Error::Place { target: target.to_path_buf(), action, source };
    let directory = target.parent().unwrap_or_else(|| Path::new("/"));
    let path = directory.join(temporary_name());
    symlink(to, &path).map_err(failed("creating a temporary link next to it"))?;
    Temporary { path, renamed: false }.rename_to(target).map_err(failed("renaming it"))?;
    sync(directory).map_err(failed("flushing its directory to disk"))
}

/// The order matters: the mode is set before the file is visible, the contents are on the disk before the rename, and the
/// rename is on the disk before the caller relies on it.
fn replace(
    target: &Path,
    contents: &mut dyn Read,
    (mode, owner): (u32, Option<Owner>),
    check: &dyn Fn() -> Result<(), Error>,
) -> Result<(), Error> {
    let failed = |action| move |source| Error::Place { target: target.to_path_buf(), action, source };
    let directory = target.parent().unwrap_or_else(|| Path::new("/"));
    let (temporary, mut file) = Temporary::create(directory).map_err(failed("creating a temporary file next to it"))?;
    io::copy(contents, &mut file).and_then(|_| file.flush()).map_err(failed("writing"))?;
    file.set_permissions(Permissions::from_mode(mode)).map_err(failed("setting its mode"))?;
    if let Some(owner) = owner {
        give(&file, owner, mode).map_err(failed("setting its owner"))?;
    }
    file.sync_all().map_err(failed("flushing it to disk"))?;
    // Closed before the rename: while any process has it open for writing, it cannot be executed (ETXTBSY).
    drop(file);
    check()?;
    temporary.rename_to(target).map_err(failed("renaming it"))?;
    sync(directory).map_err(failed("flushing its directory to disk"))
}

fn give(file: &File, owner: Owner, mode: u32) -> io::Result<()> {
    let now = file.metadata()?;
    // The agent's container has no right to change owners, and mostly needs none.
    if (now.uid(), now.gid()) == (owner.user, owner.group) {
        return Ok(());
    }
    fchown(file, Some(owner.user), Some(owner.group))?;
    // The kernel clears these when the owner changes.
    if mode & SET_ID != 0 { file.set_permissions(Permissions::from_mode(mode)) } else { Ok(()) }
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// A process id would not be unique: two installers may live in different PID namespaces.
fn temporary_name() -> String {
    format!("{PREFIX}{:016x}{SUFFIX}", RandomState::new().build_hasher().finish())
}

/// A temporary file, removed unless it was renamed.
struct Temporary {
    path: PathBuf,
    renamed: bool,
}

impl Temporary {
    fn create(directory: &Path) -> io::Result<(Self, File)> {
        loop {
            let path = directory.join(temporary_name());
            match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
                Ok(file) => return Ok((Self { path, renamed: false }, file)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn rename_to(mut self, target: &Path) -> io::Result<()> {
        fs::rename(&self.path, target)?;
        self.renamed = true;
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.renamed {
            // The next installer removes it by its name if this fails.
            let _ = fs::remove_file(&self.path);
        }
    }
}
