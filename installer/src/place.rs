//! Putting one file in place atomically: whoever opens the target sees the whole old file or the whole new one,
//! whatever happens to us in between; nobody's running copy is disturbed; and after a power cut it is one of the two.

#[cfg(test)]
mod tests;

use std::fs::{self, File, OpenOptions, Permissions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown, symlink};
use std::path::{Path, PathBuf};

use crate::{Digest, Error};

/// Temporary names start and end like this. No runtime takes them for a plugin or a configuration.
const PREFIX: &str = ".oke-cni-installer.";
const SUFFIX: &str = ".tmp";

/// The largest file that is copied, in bytes: several times the largest plugin that there is. What somebody put in our place
/// must not fill the disk a second time.
pub(crate) const LARGEST: u64 = 256 << 20;

/// Written between two looks at the fault, in bytes.
const CHUNK: usize = 64 << 10;

/// So often a file is begun: whoever installs alone takes the temporary files that he finds for a killed installer's, also
/// those of one that has waited long enough for him.
const ATTEMPTS: usize = 5;

/// Set-user-id and set-group-id.
const SET_ID: u32 = 0o6000;

/// A file to put in place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewFile<'a> {
    pub(crate) target: &'a Path,
    pub(crate) contents: Contents<'a>,
    pub(crate) mode: u32,
    /// User and group, where they are not to be ours.
    pub(crate) owner: Option<(u32, u32)>,
}

/// What it is to hold.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Contents<'a> {
    Bytes(&'a [u8]),
    /// The same as a file, which is read piece by piece: others' may be larger than the memory that we may use.
    Of(&'a File, Digest),
}

impl Contents<'_> {
    fn digest(self) -> Digest {
        match self {
            Self::Bytes(bytes) => Digest::of(bytes),
            Self::Of(_, digest) => digest,
        }
    }
}

impl<'a> NewFile<'a> {
    /// Owned by whoever we are.
    pub(crate) const fn ours(target: &'a Path, contents: &'a [u8], mode: u32) -> Self {
        Self { target, contents: Contents::Bytes(contents), mode, owner: None }
    }
}

/// The moments at which a test may let it fail or die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    Created,
    PartWritten,
    ModeSet,
    Synced,
    Verified,
    Renamed,
}

/// Whether a name is one of our temporary ones.
pub(crate) fn is_temporary(name: &str) -> bool {
    name.starts_with(PREFIX) && name.ends_with(SUFFIX)
}

/// Puts it in place. On success the target holds exactly `contents` with `mode`, on disk; on failure it is as before.
pub(crate) fn place(file: NewFile<'_>) -> Result<(), Error> {
    place_with(file, &|| Ok(()), &mut |_| Ok(()))
}

/// The same, if at the last moment before the rename `unless` has no objection.
pub(crate) fn place_unless(file: NewFile<'_>, unless: &dyn Fn() -> Result<(), Error>) -> Result<(), Error> {
    place_with(file, unless, &mut |_| Ok(()))
}

/// Puts a link in place that says `to`.
pub(crate) fn place_link(target: &Path, to: &Path) -> Result<(), Error> {
    let failed = |action| move |source| Error::Place { target: target.to_path_buf(), action, source };
    let directory = target.parent().unwrap_or_else(|| Path::new("/"));
    let path = directory.join(temporary_name());
    symlink(to, &path).map_err(failed("creating a temporary link beside it"))?;
    Temporary { path, renamed: false }.rename_to(target).map_err(failed("renaming it"))?;
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed("flushing its directory to disk"))
}

fn place_with(
    file: NewFile<'_>,
    unless: &dyn Fn() -> Result<(), Error>,
    fault: &mut dyn FnMut(Moment) -> io::Result<()>,
) -> Result<(), Error> {
    let swept =
        |error: &Error| matches!(error, Error::Place { source, .. } if source.kind() == io::ErrorKind::NotFound);
    let mut attempts = 1;
    loop {
        match attempt(file, unless, fault) {
            Err(error) if swept(&error) && attempts < ATTEMPTS => attempts += 1,
            other => return other,
        }
    }
}

/// The order matters: the mode is set while nobody can see the file, it is on the disk and read back before the rename,
/// and the rename is on the disk before we say so.
fn attempt(
    file: NewFile<'_>,
    unless: &dyn Fn() -> Result<(), Error>,
    fault: &mut dyn FnMut(Moment) -> io::Result<()>,
) -> Result<(), Error> {
    let NewFile { target, contents, mode, owner } = file;
    let failed = |action| move |source| Error::Place { target: target.to_path_buf(), action, source };
    let directory = target.parent().unwrap_or_else(|| Path::new("/"));
    let (temporary, mut written) =
        Temporary::create(directory).map_err(failed("creating a temporary file beside it"))?;
    let mut at = |moment, action| fault(moment).map_err(failed(action));
    at(Moment::Created, "creating a temporary file beside it")?;
    match contents {
        Contents::Bytes(bytes) => {
            for chunk in bytes.chunks(CHUNK) {
                written.write_all(chunk).map_err(failed("writing"))?;
                at(Moment::PartWritten, "writing")?;
            }
        }
        Contents::Of(mut from, _) => {
            from.rewind().map_err(failed("copying"))?;
            io::copy(&mut from.take(LARGEST), &mut written).map_err(failed("copying"))?;
            at(Moment::PartWritten, "copying")?;
        }
    }
    written.set_permissions(Permissions::from_mode(mode)).map_err(failed("setting its mode"))?;
    at(Moment::ModeSet, "setting its mode")?;
    written.sync_all().map_err(failed("flushing it to disk"))?;
    at(Moment::Synced, "flushing it to disk")?;
    // Closed before the rename: while anybody has it open for writing, it cannot be executed (ETXTBSY).
    drop(written);
    let read_back = Digest::of_file(&temporary.path).map_err(failed("reading it back"))?;
    if read_back != contents.digest() {
        return Err(Error::Corrupt { target: target.to_path_buf() });
    }
    if let Some(owner) = owner {
        give(&temporary.path, owner, mode).map_err(failed("giving it to its owner"))?;
    }
    at(Moment::Verified, "reading it back")?;
    unless()?;
    temporary.rename_to(target).map_err(failed("renaming it"))?;
    at(Moment::Renamed, "flushing its directory to disk")?;
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed("flushing its directory to disk"))
}

/// Gives a file to its owner. Last of all: what is somebody else's, root without further rights can neither read nor change.
fn give(path: &Path, (user, group): (u32, u32), mode: u32) -> io::Result<()> {
    let file = File::open(path)?;
    let now = file.metadata()?;
    if (now.uid(), now.gid()) == (user, group) {
        // A container may lack the right to change owners, and mostly needs none.
        return Ok(());
    }
    fchown(&file, Some(user), Some(group))?;
    if mode & SET_ID != 0 {
        // Changing the owner takes these away.
        file.set_permissions(Permissions::from_mode(mode))?;
    }
    file.sync_all()
}

/// Process ids would say nothing: two installers may live in different PID namespaces.
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
            // What stays is found by its name and age later.
            let _ = fs::remove_file(&self.path);
        }
    }
}
