//! Removes a link without waiting until the kernel frees its memory.
//!
//! The kernel takes a link off all its lists within a tenth of a millisecond (`unlist_netdevice`). No name, index, address or
//! route leads to it any more, and its name is free. It answers the request 10 to 20 ms later, after a grace period of all
//! processors (`rcu_barrier` in `netdev_run_todo`). A child process waits for that answer instead of us (decision 0018).
//!
//! ```text
//!   parent   fork ───────────── receives RTM_DELLINK ─▶ returns
//!   child      └─ sends RTM_DELLINK … grace period … exits
//! ```
//!
//! The kernel sends the RTM_DELLINK event while it holds its lock over all links, after the last list.

use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use netlink_packet_core::NLM_F_ACK;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use nix::unistd::{ForkResult, fork};
use vcn::IfName;

use super::RTM_DELLINK;
use crate::error::{Cause, Result};
use crate::routing::socket::{Socket, Write};
use crate::wire::transport::{Request, Transport};

/// Where the payload of a link event has the link's index (struct ifinfomsg).
const INDEX: std::ops::Range<usize> = 4..8;

/// How long to wait for the event. A child that died before its request causes none.
const EVENT_DEADLINE: Duration = Duration::from_secs(1);

impl Socket {
    /// Removes a link (of a veth pair: both ends) of the calling thread's namespace, as [`Socket::delete_link_named`] does, but
    /// returns when the link is gone, not when its memory is freed. A child process waits for the latter and holds no other
    /// descriptor. Only for programs that exit soon: one that stays must reap a child for each call.
    ///
    /// # Errors
    /// `is_not_found()` when the link does not exist.
    pub fn unlist_link_named(&mut self, name: &IfName) -> Result<()> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.as_str().to_owned()));
        let link = self.get_link(&message).map_err(|cause| cause.during("delete link", name))?;
        // By index from here on: no later link gets the same one, so a delayed child cannot remove a new link of this name.
        let mut message = LinkMessage::default();
        message.header.index = link.index;
        match unlist(&message) {
            Ok(()) => Ok(()),
            Err(cause @ Cause::Refused(_)) => Err(cause.during("delete link", name)),
            // No child could be started, or no event came: remove the link here and wait.
            Err(_) => match self.write(Write::Existing(RTM_DELLINK), &message, "delete link", name) {
                Err(error) if error.is_not_found() => Ok(()),
                waited => waited,
            },
        }
    }
}

fn unlist(message: &LinkMessage) -> Result<(), Cause> {
    // A socket of its own, because it receives the events of all links.
    let mut transport = Transport::open_patient(NETLINK_ROUTE, EVENT_DEADLINE)?;
    transport.socket().add_membership(libc::RTNLGRP_LINK)?;
    transport.begin();
    transport.append(Request { message_type: RTM_DELLINK, flags: NLM_F_ACK }, message);
    send_from_child(transport.socket().as_raw_fd(), transport.appended())?;
    let index = message.header.index.to_ne_bytes();
    transport.event_or_end(|kind, payload| kind == RTM_DELLINK && payload.get(INDEX) == Some(&index))
}

/// Sends `request` on `socket` from a child process, which exits when the kernel has answered.
#[expect(unsafe_code, reason = "fork")]
fn send_from_child(socket: RawFd, request: &[u8]) -> Result<(), Cause> {
    // SAFETY: the child makes system calls only; it allocates nothing, takes no lock and runs no destructor.
    match unsafe { fork() }? {
        ForkResult::Parent { .. } => Ok(()),
        ForkResult::Child => {
            // A runtime waits until our streams are closed, other verbs wait for our locks.
            // SAFETY: numbers of descriptors, and a buffer that this process owns.
            unsafe {
                libc::syscall(libc::SYS_close_range, 0, socket - 1, 0);
                libc::syscall(libc::SYS_close_range, socket + 1, libc::c_uint::MAX, 0);
                // After a failure the parent receives no event, and removes the link itself.
                libc::send(socket, request.as_ptr().cast(), request.len(), 0);
                libc::_exit(0)
            }
        }
    }
}
