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

use super::RTM_DELLINK;
use crate::error::{Cause, Result};
use crate::socket::{Socket, Write};
use crate::transport::{NLMSG_ERROR, Request, Transport};

/// Where a message has its type (struct nlmsghdr).
const TYPE_AT: u32 = 4;
/// Where a message about a link has its index (struct ifinfomsg, after the header).
const INDEX_AT: u32 = 20;

/// How long the kernel's word is waited for. A child that could not even ask says nothing.
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
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.as_str().to_owned()));
        let link = self.get_link(&message).map_err(|cause| cause.during("delete link", name))?;
        // By its number from here on, which no other link gets: a child may come late, when there is another of that name.
        let mut message = LinkMessage::default();
        message.header.index = link.index;
        match unlist(&message) {
            Ok(()) => Ok(()),
            Err(cause @ Cause::Refused(_)) => Err(cause.during("delete link", name)),
            // There was no other process to be had, or it says nothing.
            Err(_) => match self.write((RTM_DELLINK, Write::Existing), &message, "delete link", name) {
                Err(error) if error.is_not_found() => Ok(()),
                waited => waited,
            },
        }
    }
}

fn unlist(message: &LinkMessage) -> Result<(), Cause> {
    // A socket for this alone: it is told of links.
    let mut transport = Transport::open_patient(NETLINK_ROUTE, PATIENCE)?;
    hear_only(message.header.index, transport.socket())?;
    transport.socket().add_membership(libc::RTNLGRP_LINK)?;
    transport.begin();
    transport.append(Request { message_type: RTM_DELLINK, flags: NLM_F_ACK }, message);
    in_a_child(transport.socket(), transport.appended().to_owned())?;
    transport.event_or_end(|kind| kind == RTM_DELLINK)
}

/// Lets nothing come to a socket but ends of requests and the removal of one link: where hundreds of links are removed at once,
/// each would be told of each.
#[expect(unsafe_code, reason = "nix attaches no classic filters")]
fn hear_only(index: u32, socket: &impl AsRawFd) -> Result<(), Cause> {
    let plain = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let load = |width: u32, offset: u32| plain(libc::BPF_LD | width | libc::BPF_ABS, offset);
    // What a filter loads it takes for big-endian, and the kernel's messages are in the machine's order.
    let equal = |value: u32, jt: u8, jf: u8| libc::sock_filter {
        jt,
        jf,
        ..plain(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value)
    };
    let mut filter = [
        load(libc::BPF_H, TYPE_AT),
        equal(NLMSG_ERROR.to_be().into(), 3, 0),
        equal(RTM_DELLINK.to_be().into(), 0, 3),
        load(libc::BPF_W, INDEX_AT),
        equal(index.to_be(), 0, 1),
        plain(libc::BPF_RET | libc::BPF_K, u32::MAX),
        plain(libc::BPF_RET | libc::BPF_K, 0),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    let length = size_of::<libc::sock_fprog>() as libc::socklen_t;
    // SAFETY: the kernel reads the program and its instructions, which both live until it has.
    let attached = unsafe {
        let program = (&raw const program).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, program, length)
    };
    Errno::result(attached)?;
    Ok(())
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
