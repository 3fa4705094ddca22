//! One verb at a time for one attachment. What a verb reads of its attachment stays true until it ends, and a running verb can
//! be distinguished from a killed one. Unlike the lock of the files it is held during netlink requests; only verbs of the same
//! attachment wait for it.

use std::fs::File;
use std::io;

use cni::AttachmentKey;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use vcn::fnv1a;

use super::{Store, lock};
use crate::Error;

/// Held while a verb acts on an attachment; freed on drop, and by whatever ends the process.
#[derive(Debug)]
pub struct AttachmentLock {
    _file: File,
}

impl Store {
    /// Waits until no other verb acts on the attachment.
    ///
    /// # Errors
    /// [`Error::Lock`], of kind `TimedOut` when one does for longer than the store's patience.
    pub fn attachment(&self, key: &AttachmentKey) -> Result<AttachmentLock, Error> {
        let wrap = |source| Error::Lock { path: self.attachments.clone(), source };
        let (file, at) = (lock::open(&self.attachments).map_err(wrap)?, offset(key));
        let file = match act(&file, at, LockMode::Try).map_err(wrap)? {
            true => file,
            false => lock::within(self.patience, move || act(&file, at, LockMode::Wait).map(|_| file)).map_err(wrap)?,
        };
        Ok(AttachmentLock { _file: file })
    }

    /// The same without waiting; `None` when another verb acts on the attachment.
    ///
    /// # Errors
    /// [`Error::Lock`].
    pub fn try_attachment(&self, key: &AttachmentKey) -> Result<Option<AttachmentLock>, Error> {
        let wrap = |source| Error::Lock { path: self.attachments.clone(), source };
        let file = lock::open(&self.attachments).map_err(wrap)?;
        let locked = act(&file, offset(key), LockMode::Try).map_err(wrap)?;
        Ok(locked.then_some(AttachmentLock { _file: file }))
    }
}

#[derive(Clone, Copy)]
enum LockMode {
    Try,
    Wait,
}

/// Locks one byte of the file, which has none: a lock per attachment without a file per attachment. It belongs to the open
/// file, not to the process (F_OFD_SETLK), so that threads of one process exclude each other too.
fn act(file: &File, at: i64, mode: LockMode) -> io::Result<bool> {
    let range = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: at,
        l_len: 1,
        l_pid: 0,
    };
    loop {
        let argument = match mode {
            LockMode::Try => FcntlArg::F_OFD_SETLK(&range),
            LockMode::Wait => FcntlArg::F_OFD_SETLKW(&range),
        };
        match fcntl(file, argument) {
            Ok(_) => return Ok(true),
            Err(Errno::EAGAIN | Errno::EACCES) => return Ok(false),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// The byte of an attachment: FNV-1a of its key, 63 bits. Two of one byte only wait for each other.
fn offset(key: &AttachmentKey) -> i64 {
    let hash = fnv1a(key.to_string().bytes());
    // The last byte of all has no place behind it.
    i64::try_from(hash >> 2).unwrap_or_default()
}
