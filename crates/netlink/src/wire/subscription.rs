//! A socket to which the kernel reports changes by itself.

use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;

use super::transport::receive;
use crate::error::Cause;

/// Room for the events of a burst (110 pods start at once, a proxy replaces thousands of its own rules) between two reads. The
/// kernel doubles it and limits it to `net.core.rmem_max`.
const RECEIVE_QUEUE: i32 = 1024 * 1024;

/// The most datagrams read at once, so that a storm of events cannot keep the caller forever.
const DRAIN_LIMIT: usize = 4096;

/// A subscription, in the network namespace where it was opened. Reading never blocks.
#[derive(Debug)]
pub(crate) struct Subscription {
    socket: netlink_sys::Socket,
    buffer: Vec<u8>,
}

impl Subscription {
    pub(crate) fn open(protocol: isize, groups: &[u32]) -> Result<Self, Cause> {
        let mut socket = netlink_sys::Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.set_non_blocking(true)?;
        // A smaller queue only means an overrun sooner.
        let _ = socket.set_rx_buf_sz(RECEIVE_QUEUE);
        for group in groups {
            socket.add_membership(*group)?;
        }
        Ok(Self { socket, buffer: Vec::with_capacity(64 * 1024) })
    }

    /// The datagrams so far, oldest first; `None` where some were lost or one could not be read.
    pub(crate) fn drain(&mut self, mut take: impl FnMut(Option<&[u8]>)) -> Result<(), Cause> {
        for _ in 0..DRAIN_LIMIT {
            match receive(&self.socket, &mut self.buffer) {
                Ok(()) => take(Some(&self.buffer)),
                Err(Cause::TimedOut) => break,
                Err(Cause::Malformed(_)) => take(None),
                Err(cause) if cause.errno() == Some(Errno::ENOBUFS) => take(None),
                Err(cause) => return Err(cause),
            }
        }
        Ok(())
    }
}

impl AsFd for Subscription {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
