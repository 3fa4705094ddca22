//! Notices of changes. A hint to read, not a journal: the kernel drops events that are not read, and reports that.

use std::os::fd::{AsFd, BorrowedFd};

use netlink_sys::protocols::NETLINK_ROUTE;

use crate::error::{Cause, Result};
use crate::routing::address::Address;
use crate::routing::link::Link;
use crate::routing::route::Route;
use crate::routing::rule::Rule;
use crate::wire::attributes;
use crate::wire::subscription::Subscription;
use crate::wire::transport::messages;

/// All that a reconciler wants to hear: everything but neighbours, of which the kernel learns by itself.
const GROUPS: [u32; 9] = [
    libc::RTNLGRP_LINK,
    libc::RTNLGRP_IPV4_IFADDR,
    libc::RTNLGRP_IPV6_IFADDR,
    libc::RTNLGRP_IPV4_ROUTE,
    libc::RTNLGRP_IPV6_ROUTE,
    libc::RTNLGRP_IPV4_RULE,
    libc::RTNLGRP_IPV6_RULE,
    libc::RTNLGRP_IPV4_NETCONF,
    libc::RTNLGRP_IPV6_NETCONF,
];

const NETCONFA_IFINDEX: u16 = 1;

/// A subscription, in the network namespace where it was opened. Reading never blocks.
#[derive(Debug)]
pub struct Monitor {
    subscription: Subscription,
}

/// One event of the kernel's routing groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A link appeared, changed or went.
    Link(Change, Link),
    /// An address came, changed or went.
    Address(Change, Address),
    /// A route came, changed or went.
    Route(Change, Route),
    /// A rule came or went.
    Rule(Change, Rule),
    /// A program wrote a setting, for one link or all links, in /proc/sys or otherwise: forwarding, rp_filter, proxies.
    Setting,
    /// Events were lost (or one could not be read): look at everything again.
    Overrun,
}

/// What happened to the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is new, or not as before.
    Present,
    /// The object was deleted.
    Gone,
}

impl Monitor {
    /// Subscribes in the calling thread's network namespace.
    ///
    /// # Errors
    /// When the system is out of descriptors or memory.
    pub fn open() -> Result<Self> {
        match Subscription::open(NETLINK_ROUTE, &GROUPS) {
            Ok(subscription) => Ok(Self { subscription }),
            Err(cause) => Err(cause.during("subscribe to", "network changes")),
        }
    }

    /// The events so far, oldest first; empty when there is none. Wait by polling the descriptor.
    ///
    /// # Errors
    /// When the socket is broken. Lost events are not an error: they are reported as [`Event::Overrun`].
    pub fn drain(&mut self) -> Result<Vec<Event>> {
        let mut events = Vec::new();
        let drained = self.subscription.drain(|datagram| match datagram {
            Some(datagram) => decode(datagram, &mut events),
            None => lost(&mut events),
        });
        drained.map(|()| events).map_err(|cause| cause.during("read", "network changes"))
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.subscription.as_fd()
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
        32 => Rule::decode(payload)?.map(|rule| Event::Rule(change, rule)),
        80 if change == Change::Present && is_written(payload)? => Some(Event::Setting),
        _ => None,
    })
}

/// Whether a message about settings is of one that was written. Where it lists all settings of a link, that link is new.
pub(crate) fn is_written(payload: &[u8]) -> Result<bool, Cause> {
    // After the family, and padding to the attributes' alignment.
    let mut values = 0;
    for attribute in attributes::after(payload, 4) {
        let (kind, _) = attribute?;
        values += u32::from(kind != NETCONFA_IFINDEX);
    }
    Ok(values == 1)
}

/// One overrun says all that two would.
fn lost(events: &mut Vec<Event>) {
    if !events.contains(&Event::Overrun) {
        events.push(Event::Overrun);
    }
}
