//! Notices of changes. A hint to read, not a journal: the kernel drops events that are not read, and reports that.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use netlink_sys::protocols::NETLINK_ROUTE;
use nix::errno::Errno;

use crate::error::{Cause, Result};
use crate::netns::Netns;
use crate::routing::address::Address;
use crate::routing::link::Link;
use crate::routing::neighbour::Neighbour;
use crate::routing::route::Route;
use crate::routing::rule::Rule;
use crate::routing::setting::Setting;
use crate::wire::transport::{messages, receive};

/// Room for the events of a burst (110 pods start at once) between two reads. The kernel doubles it and limits it to
/// `net.core.rmem_max`.
const RECEIVE_QUEUE: i32 = 1024 * 1024;

/// The most datagrams read by one `drain`, so that a storm of events cannot keep the caller forever.
const DRAIN_LIMIT: usize = 4096;

/// A subscription, in the network namespace where it was opened. Reading never blocks.
#[derive(Debug)]
pub struct Monitor {
    socket: netlink_sys::Socket,
    buffer: Vec<u8>,
}

/// The kinds of changes to report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    /// Links.
    pub links: bool,
    /// Addresses, both families.
    pub addresses: bool,
    /// Routes, both families.
    pub routes: bool,
    /// Policy rules, both families.
    pub rules: bool,
    /// Neighbours: busy, the kernel's own learning included.
    pub neighbours: bool,
    /// Settings of links and of all of them, both families: forwarding, rp_filter, proxies.
    pub settings: bool,
}

impl Groups {
    /// All that a reconciler wants to hear: everything but neighbours.
    pub const CONFIGURATION: Self =
        Self { links: true, addresses: true, routes: true, rules: true, neighbours: false, settings: true };

    fn numbers(self) -> impl Iterator<Item = u32> {
        [
            (self.links, libc::RTNLGRP_LINK),
            (self.addresses, libc::RTNLGRP_IPV4_IFADDR),
            (self.addresses, libc::RTNLGRP_IPV6_IFADDR),
            (self.routes, libc::RTNLGRP_IPV4_ROUTE),
            (self.routes, libc::RTNLGRP_IPV6_ROUTE),
            (self.rules, libc::RTNLGRP_IPV4_RULE),
            (self.rules, libc::RTNLGRP_IPV6_RULE),
            (self.neighbours, libc::RTNLGRP_NEIGH),
            (self.settings, libc::RTNLGRP_IPV4_NETCONF),
            (self.settings, libc::RTNLGRP_IPV6_NETCONF),
        ]
        .into_iter()
        .filter_map(|(wanted, group)| wanted.then_some(group))
    }
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A link appeared, changed or went.
    Link(Change, Link),
    /// An address.
    Address(Change, Address),
    /// A route.
    Route(Change, Route),
    /// A rule.
    Rule(Change, Rule),
    /// A neighbour.
    Neighbour(Change, Neighbour),
    /// A setting was written.
    Setting(Setting),
    /// Events were lost (or one could not be read): look at everything again.
    Overrun,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is new, or not as before.
    Present,
    /// It is gone.
    Gone,
}

impl Monitor {
    /// Subscribes in the calling thread's network namespace.
    ///
    /// # Errors
    /// When the system is out of descriptors or memory.
    pub fn open(groups: Groups) -> Result<Self> {
        let open = || -> Result<Self, Cause> {
            let mut socket = netlink_sys::Socket::new(NETLINK_ROUTE)?;
            socket.bind_auto()?;
            socket.set_non_blocking(true)?;
            // A smaller queue only means an overrun sooner.
            let _ = socket.set_rx_buf_sz(RECEIVE_QUEUE);
            for group in groups.numbers() {
                socket.add_membership(group)?;
            }
            Ok(Self { socket, buffer: Vec::with_capacity(64 * 1024) })
        };
        open().map_err(|cause| cause.during("subscribe to", "network changes"))
    }

    /// Subscribes in another network namespace.
    ///
    /// # Errors
    /// When the namespace cannot be entered (CAP_SYS_ADMIN), and as [`Monitor::open`].
    pub fn open_in(netns: &Netns, groups: Groups) -> Result<Self> {
        netns.run(|| Self::open(groups))?
    }

    /// The events so far, oldest first; empty when there is none. Wait by polling the descriptor.
    ///
    /// # Errors
    /// When the socket is broken. Lost events are no error but [`Event::Overrun`].
    pub fn drain(&mut self) -> Result<Vec<Event>> {
        let mut events = Vec::new();
        for _ in 0..DRAIN_LIMIT {
            match receive(&self.socket, &mut self.buffer) {
                Ok(()) => decode(&self.buffer, &mut events),
                Err(Cause::TimedOut) => break,
                Err(Cause::Malformed(_)) => lost(&mut events),
                Err(cause) if cause.errno() == Some(Errno::ENOBUFS) => lost(&mut events),
                Err(cause) => return Err(cause.during("read", "network changes")),
            }
        }
        Ok(events)
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Monitor {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

fn decode(datagram: &[u8], events: &mut Vec<Event>) {
    for message in messages(datagram) {
        match message.and_then(|message| event(message.message_type(), message.payload())) {
            Ok(event) => events.extend(event),
            Err(_) => lost(events),
        }
    }
}

/// Message types come in fours (new, delete, get, set) per noun.
fn event(message_type: u16, payload: &[u8]) -> Result<Option<Event>, Cause> {
    let change = match message_type % 4 {
        0 => Change::Present,
        1 => Change::Gone,
        _ => return Ok(None),
    };
    Ok(match message_type & !3 {
        16 => Link::decode(payload)?.map(|link| Event::Link(change, link)),
        20 => Address::decode(payload)?.map(|address| Event::Address(change, address)),
        24 => Route::decode(payload)?.map(|route| Event::Route(change, route)),
        28 => Neighbour::decode(payload)?.map(|neighbour| Event::Neighbour(change, neighbour)),
        32 => Rule::decode(payload)?.map(|rule| Event::Rule(change, rule)),
        80 if change == Change::Present => Setting::decode(payload)?.map(Event::Setting),
        _ => None,
    })
}

/// One overrun says all that two would.
fn lost(events: &mut Vec<Event>) {
    if !events.contains(&Event::Overrun) {
        events.push(Event::Overrun);
    }
}
