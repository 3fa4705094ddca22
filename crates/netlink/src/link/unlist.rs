//! Removing a link without waiting for the kernel to free it.
//!
//! A link is gone for everybody when the kernel has taken it from its lists: no name, no index, no address, no route leads
//! to it any more, in neither namespace of a pair, and its name can be had again. The request is answered 10 to 20 ms later:
//! only when all processors have passed a grace period (`rcu_barrier` in `netdev_run_todo`) is its memory freed. Nobody needs
//! that but the kernel, and somebody must wait there, for it is the system call of whoever asked (decision 0018).
//!
//! ```text
//!   parent   clone ───────────── hears RTM_DELLINK ─▶ goes on, and ends
//!   child      └─ sends RTM_DELLINK … grace period … ends
//! ```
//!
//! The kernel tells of the removal while it holds its lock over all links, after the last list: what anybody asks about links
//! from then on is answered after it.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use netlink_packet_core::NLM_F_ACK;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use nix::errno::Errno;
use rustix::net::SendFlags;
use vcn::IfName;

use super::{Link, RTM_DELLINK};
use crate::error::{Cause, Result};
use crate::socket::Socket;
use crate::transport::{Request, Transport};

/// How long the kernel's word is waited for. A child that could not even ask says nothing, and where the lock over all links
/// is held for longer, asking once more does no harm.
const PATIENCE: Duration = Duration::from_secs(1);

/// Enough for the calls of `run`, of which none is deep.
const STACK: usize = 16 * 1024;

impl Socket {
    /// Removes a link (of a veth pair: both ends) of the calling thread's namespace, as [`Socket::delete_link_named`] does, and
    /// answers when it is gone, not when it is freed. A child process waits for that, which holds nothing else open; it is no
    /// other program. For programs that end soon: whoever lives on collects a dead child for each call.
    ///
    /// # Errors
    /// `is_not_found()` when it is gone already.
    pub fn unlist_link_named(&mut self, name: &IfName) -> Result<()> {
        match unlist(name) {
            Ok(()) => Ok(()),
            Err(cause @ Cause::Refused(_)) => Err(cause.during("delete link", name)),
            // There was no other process to be had, or the kernel's word got lost among others'.
            Err(_) => match self.delete_link_named(name) {
                Err(error) if error.is_not_found() => Ok(()),
                waited => waited,
            },
        }
    }
}

fn unlist(name: &IfName) -> Result<(), Cause> {
    // A socket for this alone: others' events must not fill the queue of one that goes on.
    let mut transport = Transport::open_patient(NETLINK_ROUTE, PATIENCE)?;
    transport.socket().add_membership(libc::RTNLGRP_LINK)?;
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName(name.as_str().to_owned()));
    transport.begin();
    transport.append(Request { message_type: RTM_DELLINK, flags: NLM_F_ACK }, &message);
    in_a_child(transport.socket(), transport.appended().to_owned())?;
    transport.event_or_end(|kind, payload| {
        Ok(kind == RTM_DELLINK && Link::decode(payload)?.is_some_and(|link| link.name == *name))
    })
}

/// What the child does, whose memory is its parent's.
struct Errand {
    socket: RawFd,
    request: Vec<u8>,
}

/// Has a request sent by a child process. It shares our memory, as a thread would, for a copy of it would cost more than all
/// else that a deletion does; so what it uses is never given back, and the calls it makes write no `errno`.
#[expect(unsafe_code, reason = "a process that shares memory, which no crate makes")]
fn in_a_child(socket: &impl AsRawFd, request: Vec<u8>) -> Result<(), Cause> {
    let errand = Box::leak(Box::new(Errand { socket: socket.as_raw_fd(), request }));
    let mut stack = ManuallyDrop::new(Vec::<u128>::with_capacity(STACK / size_of::<u128>()));
    let top = stack.spare_capacity_mut().as_mut_ptr_range().end;
    // SAFETY: the stack is the child's alone, its end is aligned as a stack must be, and neither it nor the errand is ever
    // freed. The child has descriptors of its own (no CLONE_FILES).
    let child = unsafe { libc::clone(run, top.cast(), libc::CLONE_VM | libc::SIGCHLD, (&raw mut *errand).cast()) };
    Errno::result(child)?;
    Ok(())
}

#[expect(unsafe_code, reason = "an argument as C passes it, and descriptors by number")]
extern "C" fn run(errand: *mut c_void) -> c_int {
    // SAFETY: `in_a_child` leaked it, and nobody writes to it.
    let errand = unsafe { &*errand.cast::<Errand>() };
    // SAFETY: the descriptor is open in this process, which closes nothing before it ends.
    let socket = unsafe { BorrowedFd::borrow_raw(errand.socket) };
    // Whoever started us waits for the ends of our streams, and others for our locks.
    // SAFETY: numbers of descriptors only.
    unsafe {
        libc::syscall(libc::SYS_close_range, 0, errand.socket - 1, 0);
        libc::syscall(libc::SYS_close_range, errand.socket + 1, c_uint::MAX, 0);
    }
    // Where this fails the parent hears nothing, and does it itself.
    let _ = rustix::net::send(socket, &errand.request, SendFlags::empty());
    0
}
