//! The runtime's directories, and modes of files in them, without following links that are not the administrators'.
//!
//! A link in a configured path is followed where root (or whoever we are) owns it: distributions have such, k3s for one at
//! `/etc/cni/net.d`. Anybody else's is refused: it would have us write where he likes. In the directories themselves no link is
//! followed by us: a file of ours takes the place of one.

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

/// Of directories made.
const MODE: Mode = Mode::from_bits_truncate(0o755);

/// As many links as the kernel follows.
const LINKS: usize = 40;

/// Makes a directory and those above it, component by component, each held while the next is made in it.
pub(crate) fn create(path: &Path) -> io::Result<()> {
    walk(path, true)
}

/// Whether a directory is where only the administrators have it be. One that is not there, or cannot be looked at, is
/// nobody else's.
pub(crate) fn is_administrators(path: &Path) -> io::Result<()> {
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
                format!("{name} on the way to it is a link of user {owner}, which is not followed"),
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

/// Sets the mode of a file, not of what a link in its place leads to.
pub(crate) fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    // It need not be readable for that.
    let file = OpenOptions::new().read(true).custom_flags((OFlag::O_PATH | OFlag::O_NOFOLLOW).bits()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file"));
    }
    fs::set_permissions(format!("/proc/self/fd/{}", file.as_raw_fd()), Permissions::from_mode(mode))
}

/// Opens a file for reading, not what a link in its place leads to, and never waits for whoever has the other end of a pipe.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits()).open(path)
}

fn begin(at: &str) -> io::Result<OwnedFd> {
    Ok(openat(AT_FDCWD, at, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?)
}

fn look(here: &OwnedFd, name: &OsStr) -> nix::Result<OwnedFd> {
    openat(here.as_fd(), name, OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())
}

/// Its names, the first one last.
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
