//! The runtime's directories, and the files in them, without following links of other users.
//!
//! A link in a configured path is followed if root (or this process's user) owns it: distributions have such links, k3s for
//! one at `/etc/cni/net.d`. A link of another user is refused: that user could choose where root writes. In the directories
//! themselves no link is followed: our file replaces it.

#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, mkdirat};
use nix::unistd::geteuid;

/// Mode of created directories.
const MODE: Mode = Mode::from_bits_truncate(0o755);

/// The kernel follows as many links.
const LINKS: usize = 40;

/// Creates a directory and those above it, component by component; each is held open while the next is created in it.
pub(crate) fn create_directory(path: &Path) -> io::Result<()> {
    walk(path, true)
}

/// Refuses a path that a link of another user leads elsewhere. A path that does not exist or cannot be read passes.
pub(crate) fn check_links(path: &Path) -> io::Result<()> {
    match walk(path, false) {
        Err(error) if error.raw_os_error().is_some() => Ok(()),
        other => other,
    }
}

fn walk(path: &Path, make: bool) -> io::Result<()> {
    let mut here = if path.is_absolute() { begin("/")? } else { begin(".")? };
    let mut left = names(path);
    let mut links = 0;
    while let Some(name) = left.pop() {
        let next = match look(&here, &name) {
            Err(Errno::ENOENT) if make => {
                match mkdirat(here.as_fd(), name.as_os_str(), MODE) {
                    Ok(()) | Err(Errno::EEXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                look(&here, &name)?
            }
            other => other?,
        };
        let found = fstat(&next)?;
        if !is(&found, SFlag::S_IFLNK) {
            here = next;
            continue;
        }
        if found.st_uid != 0 && found.st_uid != geteuid().as_raw() {
            let (name, owner) = (name.display(), found.st_uid);
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("{name} in its path is a link that belongs to user {owner}, which is not followed"),
            ));
        }
        links += 1;
        if links > LINKS {
            return Err(Errno::ELOOP.into());
        }
        let to = readlinkat(&next, OsStr::new(""))?;
        if Path::new(&to).is_absolute() {
            here = begin("/")?;
        }
        left.extend(names(Path::new(&to)));
    }
    match is(&fstat(&here)?, SFlag::S_IFDIR) {
        true => Ok(()),
        false => Err(Errno::ENOTDIR.into()),
    }
}

/// Sets the mode of a file; a link is not followed.
pub(crate) fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    // The file need not be readable for that.
    let file = OpenOptions::new().read(true).custom_flags((OFlag::O_PATH | OFlag::O_NOFOLLOW).bits()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file"));
    }
    fs::set_permissions(format!("/proc/self/fd/{}", file.as_raw_fd()), Permissions::from_mode(mode))
}

/// Opens a file for reading. A link is not followed, and a pipe does not block.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits()).open(path)
}

fn begin(at: &str) -> io::Result<OwnedFd> {
    Ok(openat(AT_FDCWD, at, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?)
}

fn look(here: &OwnedFd, name: &OsStr) -> nix::Result<OwnedFd> {
    openat(here.as_fd(), name, OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())
}

/// A path's components, the first one last.
fn names(path: &Path) -> Vec<OsString> {
    let name = |component: Component<'_>| match component {
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        Component::ParentDir => Some(OsString::from("..")),
        Component::Normal(name) => Some(name.to_owned()),
    };
    path.components().rev().filter_map(name).collect()
}

fn is(found: &FileStat, kind: SFlag) -> bool {
    SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT == kind
}
