//! The routing socket. Its operations live with their nouns: `link.rs`, `address.rs`, `route.rs`, …

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use netlink_packet_core::Emitable;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_sys::protocols::NETLINK_ROUTE;
use nix::errno::Errno;
use vcn::IfName;

use crate::error::{Cause, Result};
use crate::netns::{Home, Netns};
use crate::wire::transport::{Request, Transport};

/// A routing socket (NETLINK_ROUTE). It belongs to the network namespace where it was opened and stays there, wherever
/// the thread that uses it goes.
#[derive(Debug)]
pub struct Socket {
    pub(crate) transport: Transport,
}

/// A change by its message type, and what the kernel does when the object exists already or does not.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Write {
    /// It must be new.
    Add(u16),
    Replace(u16),
    /// It must exist (changes and deletions).
    Existing(u16),
}

impl Write {
    const fn request(self) -> Request {
        let (message_type, flags) = match self {
            Self::Add(message_type) => (message_type, NLM_F_CREATE | NLM_F_EXCL),
            Self::Replace(message_type) => (message_type, NLM_F_CREATE | NLM_F_REPLACE),
            Self::Existing(message_type) => (message_type, 0),
        };
        Request { message_type, flags }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.transport.as_fd()
    }
}

impl Socket {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// When the system is out of descriptors or memory.
    pub fn open() -> Result<Self> {
        match Transport::open(NETLINK_ROUTE) {
            Ok(transport) => Ok(Self { transport }),
            Err(cause) => Err(cause.during("open", "a routing socket")),
        }
    }

    /// Opens a socket in another network namespace.
    ///
    /// # Errors
    /// When the namespace cannot be entered (CAP_SYS_ADMIN), and as [`Socket::open`].
    pub fn open_in(netns: &Netns) -> Result<Self> {
        Self::open_in_from(netns, &Home::of_this_thread()?)
    }

    /// As [`Socket::open_in`], for a caller that needs its own namespace anyway: `home` must be it.
    ///
    /// # Errors
    /// As [`Socket::open_in`].
    pub fn open_in_from(netns: &Netns, home: &Home) -> Result<Self> {
        netns.visit(home, Self::open)
    }

    /// A link's index. An ioctl, not a message: RTM_GETLINK right after a link was made waits for its carrier state to
    /// settle, which costs more than making it. Use [`Socket::link`] instead where the link is likely absent: for an
    /// unknown name this one makes the kernel look for a module of that name.
    ///
    /// # Errors
    /// `is_not_found()` when there is no such link.
    pub fn index_of(&mut self, name: &IfName) -> Result<u32> {
        let index = || -> Result<u32, Errno> {
            let answer = self.link_ioctl(name, libc::SIOCGIFINDEX)?;
            // SAFETY: what SIOCGIFINDEX writes, and any bytes are a number.
            #[expect(unsafe_code, reason = "a field of a C union")]
            let index = unsafe { answer.ifr_ifru.ifru_ifindex };
            u32::try_from(index).map_err(|_| Errno::ENODEV)
        };
        index().map_err(|errno| Cause::from(errno).during("find link", name))
    }

    /// Whether a link was raised by the administrator: an ioctl that takes no lock.
    ///
    /// # Errors
    /// `is_not_found()` when there is no such link.
    pub fn is_up(&mut self, name: &IfName) -> Result<bool> {
        let answer = self.link_ioctl(name, libc::SIOCGIFFLAGS);
        let answer = answer.map_err(|errno| Cause::from(errno).during("find link", name))?;
        // SAFETY: what SIOCGIFFLAGS writes, and any bytes are a number.
        #[expect(unsafe_code, reason = "a field of a C union")]
        let flags = unsafe { answer.ifr_ifru.ifru_flags };
        Ok(i32::from(flags) & libc::IFF_UP != 0)
    }

    #[expect(unsafe_code, reason = "no crate wraps these on a given socket")]
    fn link_ioctl(&self, name: &IfName, which: libc::c_ulong) -> Result<libc::ifreq, Errno> {
        // SAFETY: an all-zero ifreq is valid: it is plain numbers.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // An `IfName` is shorter than the field, so the closing NUL stays.
        for (to, from) in request.ifr_name.iter_mut().zip(name.as_str().bytes()) {
            *to = libc::c_char::from_ne_bytes([from]);
        }
        // Any socket will do, and this one is in the right namespace.
        let descriptor = self.transport.socket().as_raw_fd();
        // SAFETY: the kernel reads the name and writes what was requested, both within `request`.
        unsafe { Errno::result(libc::ioctl(descriptor, which as _, &raw mut request))? };
        Ok(request)
    }

    /// Sends a request that changes something, and waits until it is done.
    pub(crate) fn write(
        &mut self,
        write: Write,
        body: &impl Emitable,
        operation: &'static str,
        subject: &dyn fmt::Display,
    ) -> Result<()> {
        self.transport.acknowledged(write.request(), body).map_err(|cause| cause.during(operation, subject))
    }
}
