//! The runtime's directories, and the files in them, without following links of other users.
//!
//! A link in a configured path is followed if root (or this process's user) owns it: distributions have such links, k3s for
//! one at `/etc/cni/net.d`. A link of another user is refused: that user could choose where root writes. In the directories
//! themselves no link is followed or replaced.

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::geteuid;

/// Mode of created directories.
const MODE: u32 = 0o755;

/// The kernel follows as many links.
const LINKS: usize = 40;

/// Creates a directory and those above it.
pub(crate) fn create_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(MODE).create(resolve(path)?)
}

/// Refuses a path that a link of another user leads elsewhere. A path that does not exist or cannot be read passes.
pub(crate) fn check_links(path: &Path) -> io::Result<()> {
    match resolve(path) {
        Err(error) if error.raw_os_error().is_some() => Ok(()),
        other => other.map(drop),
    }
}

/// An absolute path without links. Its end need not exist.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    let (mut resolved, mut left, mut links) = (PathBuf::from("/"), components(path), 0);
    while let Some(name) = left.pop() {
        if name == ".." {
            resolved.pop();
            continue;
        }
        let next = resolved.join(&name);
        let found = match fs::symlink_metadata(&next) {
            Ok(found) if found.is_symlink() => found,
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {
                resolved = next;
                continue;
            }
        };
        if found.uid() != 0 && found.uid() != geteuid().as_raw() {
            let (name, owner) = (name.display(), found.uid());
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("{name} in its path is a link that belongs to user {owner}, which is not followed"),
            ));
        }
        links += 1;
        if links > LINKS {
            return Err(Errno::ELOOP.into());
        }
        let to = fs::read_link(&next)?;
        if to.is_absolute() {
            resolved = PathBuf::from("/");
        }
        left.extend(components(&to));
    }
    Ok(resolved)
}

/// Why what has the name of a file is no regular file, and the next step.
pub(crate) fn irregular(path: &Path) -> String {
    match fs::read_link(path) {
        Ok(to) => format!("it is a symbolic link to {}; replace it by a regular file", to.display()),
        Err(_) => "it is a directory or special file; move it away".to_owned(),
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

/// A path's components, the first one last.
fn components(path: &Path) -> Vec<OsString> {
    let name = |component: Component<'_>| match component {
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        Component::ParentDir => Some(OsString::from("..")),
        Component::Normal(name) => Some(name.to_owned()),
    };
    path.components().rev().filter_map(name).collect()
}
