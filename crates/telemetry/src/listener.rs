//! The agent's end: a datagram socket in the state directory, that every run of a plugin may send one record to.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::VerbRecord;
use crate::record::LINE_LIMIT;

/// The socket, in the state directory.
pub const SOCKET: &str = "telemetry.sock";

/// The receiving socket. It is removed on drop, unless a newer listener has taken its place.
#[derive(Debug)]
pub struct Listener {
    socket: UnixDatagram,
    path: PathBuf,
    /// Device and inode of our socket.
    identity: (u64, u64),
}

/// Why nothing can be received.
#[derive(Debug, Error)]
#[error("listening for plugin records on {path}", path = path.display())]
pub struct ListenError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl Listener {
    /// Listens in the state directory `dir`. What was left there by an earlier agent, alive or not, is replaced in one
    /// step: plugins always find a socket, and the newest agent gets the records.
    ///
    /// # Errors
    /// When the directory is missing or not writable.
    pub fn bind(dir: &Path) -> Result<Self, ListenError> {
        let path = socket_path(dir);
        let new = dir.join(format!(".{SOCKET}.{}", std::process::id()));
        let bound = || {
            // Left by an agent that died between bind and rename, with the same process id.
            let _ = fs::remove_file(&new);
            let socket = UnixDatagram::bind(&new)?;
            socket.set_nonblocking(true)?;
            fs::set_permissions(&new, Permissions::from_mode(0o600))?;
            let found = fs::symlink_metadata(&new)?;
            fs::rename(&new, &path)?;
            Ok((socket, (found.dev(), found.ino())))
        };
        match bound() {
            Ok((socket, identity)) => Ok(Self { socket, path, identity }),
            Err(source) => {
                let _ = fs::remove_file(&new);
                Err(ListenError { path, source })
            }
        }
    }

    /// The next record, without waiting. An `io::Result` because that is what reactors want of a descriptor.
    ///
    /// # Errors
    /// `WouldBlock` when there is none; `InvalidData` when a program sent something else, and there may be more.
    pub fn recv(&self) -> io::Result<VerbRecord> {
        // One byte more than allowed: the kernel cuts what is longer, and the rest must not pass for a record.
        let mut buffer = [0; LINE_LIMIT + 1];
        let length = self.socket.recv(&mut buffer)?;
        let line = buffer.get(..length).filter(|line| line.len() <= LINE_LIMIT);
        let line = line.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a record of more than 4 KiB"))?;
        VerbRecord::from_line(line).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let ours = |found: fs::Metadata| (found.dev(), found.ino()) == self.identity;
        if fs::symlink_metadata(&self.path).is_ok_and(ours) {
            // Left behind it is a socket that refuses, which plugins cope with.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Where plugins send records to.
pub(crate) fn socket_path(dir: &Path) -> PathBuf {
    dir.join(SOCKET)
}
