//! Waiting for a descriptor that tokio has no type for.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::inotify::Inotify;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Something to wait for: a copy of a descriptor, so that it stays open whatever becomes of the original.
#[derive(Debug)]
pub struct Readable {
    descriptor: AsyncFd<OwnedFd>,
}

impl Readable {
    /// Watches what a descriptor refers to.
    ///
    /// # Errors
    /// When it cannot be copied or waited for.
    pub fn new(descriptor: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self { descriptor: register(descriptor.try_clone_to_owned()?)? })
    }

    /// Waits until `read` returns a value. It returns `None` when nothing is left to read, and is called again when there
    /// is more. May be dropped while it waits.
    ///
    /// # Errors
    /// As `read` says, or the system.
    pub async fn wait<T>(&self, mut read: impl FnMut() -> io::Result<Option<T>>) -> io::Result<T> {
        loop {
            let mut ready = self.descriptor.readable().await?;
            match read()? {
                // There may be more: the descriptor stays ready, and the next wait finds out.
                Some(found) => return Ok(found),
                None => ready.clear_ready(),
            }
        }
    }
}

#[expect(unsafe_code, reason = "tokio's constructor trusts any AsRawFd to keep its descriptor open")]
fn register(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd is one open descriptor, always the same, until it is dropped; the AsyncFd owns it.
    Ok(unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }?)
}

/// Reads all pending events and drops them: the files themselves show what happened. `None` when there was nothing.
///
/// # Errors
/// When the system will not tell.
pub fn drain(inotify: &Inotify) -> io::Result<Option<()>> {
    let mut some = None;
    loop {
        match inotify.read_events() {
            Ok(events) if events.is_empty() => return Ok(some),
            Ok(_) => some = Some(()),
            Err(Errno::EAGAIN) => return Ok(some),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
