//! State files: one atomic write and one bounded read for the whole workspace.
//!
//! A reader sees the whole old file or the whole new one. Neither the write nor the read follows a symbolic link, and the read
//! refuses anything but a regular file of bounded size.

mod atomic;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::fs::{self, File, rename};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::Mode;

pub use atomic::{AtomicFile, write_atomically};

/// The largest state file that is read, in bytes. The largest one that can exist is pools.json. The API server accepts a
/// NativePodNetwork of at most 1.5 MiB (etcd's limit). Its addresses, one a line, need less than four times that.
pub const MAX_STATE_BYTES: u64 = 8 << 20;

/// The mode of state files: root only.
const STATE_MODE: u32 = 0o600;

const NOT_REGULAR: &str = "it is a pipe, a socket or a device, not a regular file";

/// The most damaged copies of one file that are kept. A further one replaces the last.
const MAX_DAMAGED: usize = 8;

/// Moves a damaged file out of the way: to `<path>.damaged`, or if that exists to `<path>.damaged.2` and so on, because the
/// first copy shows most. Returns the new path.
///
/// # Errors
/// When it cannot be moved.
pub fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let first = beside(path, "damaged");
    let further = (2..=MAX_DAMAGED).map(|number| beside(&first, number.to_string()));
    let mut last = first.clone();
    for aside in [first.clone()].into_iter().chain(further) {
        // A hard link replaces nothing.
        match fs::hard_link(path, &aside) {
            Ok(()) => return fs::remove_file(path).map(|()| aside),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = aside,
            // Some file systems have no hard links.
            Err(_) if !aside.exists() => return rename(path, &aside).map(|()| aside),
            Err(_) => last = aside,
        }
    }
    rename(path, &last).map(|()| last)
}

/// Writes a temporary file for a later rename, without a flush to disk: the state directory is a tmpfs, and a crash of the
/// machine voids its content.
///
/// # Errors
/// Any of the system calls; the temporary file is then removed.
pub(crate) fn stage(temporary: &Path, content: &[u8]) -> io::Result<()> {
    create(temporary, STATE_MODE)?.write_all(content).inspect_err(|_| drop(fs::remove_file(temporary)))
}

/// `path` with a further extension.
pub(crate) fn beside(path: &Path, extension: impl AsRef<OsStr>) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".");
    beside.push(extension);
    beside.into()
}

/// Reads a state file of at most [`MAX_STATE_BYTES`], which writers replace as a whole.
///
/// # Errors
/// Of kind `InvalidData` if the path is a symbolic link, a pipe, a device or a larger file; else any of the system calls.
pub fn read_state(path: &Path) -> io::Result<Vec<u8>> {
    read_bounded(open(path, OFlag::O_RDONLY)?)
}

/// Reads a file that the operator named, as [`read_state`] does, but follows links: a ConfigMap's files are links.
///
/// # Errors
/// As [`read_state`].
pub fn read_named(path: &Path) -> io::Result<Vec<u8>> {
    read_bounded(File::options().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?)
}

fn read_bounded(mut file: File) -> io::Result<Vec<u8>> {
    let found = file.metadata()?;
    // Reading a directory fails with an error that says so.
    if !(found.is_file() || found.is_dir()) {
        return Err(invalid(NOT_REGULAR));
    }
    let too_large = |bytes: u64| invalid(format!("it has {bytes} bytes, and at most {MAX_STATE_BYTES} are read"));
    if found.len() > MAX_STATE_BYTES {
        return Err(too_large(found.len()));
    }
    let length = usize::try_from(found.len()).unwrap_or_default();
    // One byte of extra room: a single read that leaves it unused has read everything and need not be repeated.
    let mut content = vec![0; length + 1];
    let read = file.read(&mut content).or_else(|error| match error.kind() {
        io::ErrorKind::Interrupted => Ok(0),
        _ => Err(error),
    })?;
    content.truncate(read);
    if read != length {
        // The file grew meanwhile.
        file.take(MAX_STATE_BYTES).read_to_end(&mut content)?;
        if content.len() as u64 > MAX_STATE_BYTES {
            return Err(too_large(content.len() as u64));
        }
    }
    Ok(content)
}

/// Creates a file and changes no other: it removes a link or a file that is in its place, and never writes through it.
///
/// # Errors
/// Any of the system calls.
pub fn create(path: &Path, mode: u32) -> io::Result<File> {
    let create = || open_with(path, OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL, mode);
    match create() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(path)?;
            create()
        }
        created => created,
    }
}

/// Opens a file; only root can read a new one. It follows no link and waits for no pipe. It calls `openat`, because `std`
/// with musl calls `open` and needs a second system call for O_CLOEXEC.
///
/// # Errors
/// The kernel's.
pub(crate) fn open(path: &Path, flags: OFlag) -> io::Result<File> {
    open_with(path, flags, STATE_MODE)
}

fn open_with(path: &Path, flags: OFlag, mode: u32) -> io::Result<File> {
    let flags = flags | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    loop {
        match openat(AT_FDCWD, path, flags, Mode::from_bits_truncate(mode)) {
            Err(Errno::EINTR) => {}
            Err(Errno::ELOOP) => return Err(invalid("it is a symbolic link, which is not followed")),
            Err(Errno::ENXIO) => return Err(invalid(NOT_REGULAR)),
            opened => return Ok(opened?.into()),
        }
    }
}

fn invalid(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}
