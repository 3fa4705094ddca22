//! Addresses and routes of a link as the kernel listed them, byte for byte, so that they can be added again unchanged. This keeps
//! what the typed descriptions leave out: lifetimes, labels, several next hops, metrics. `ip addr save` works likewise.

use std::net::IpAddr;

use netlink_packet_core::{Emitable, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use vcn::Family;

use crate::error::{Cause, Error, Result};
use crate::routing::route::{RouteFilter, wire_family};
use crate::routing::socket::Socket;
use crate::wire::attributes;
use crate::wire::transport::Request;

const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_GETADDR: u16 = 22;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
/// The headers of both messages: family, lengths and kinds, then a number.
const ADDRESS_HEADER: usize = 8;
const ROUTE_HEADER: usize = 12;
// Not every C library's headers have these (linux/rtnetlink.h).
const RTA_EXPIRES: u16 = 23;
/// The part of a route's flags that a request may have (RTNH_F_ONLINK).
const REQUESTED_FLAGS: u8 = 4;
/// What duplicate address detection says of an address.
const DETECTION: u32 = libc::IFA_F_TENTATIVE | libc::IFA_F_DADFAILED | libc::IFA_F_OPTIMISTIC;
/// The kernel counts what is left of a route's time in hundredths of a second.
const TICKS: u32 = 100;

/// A link's addresses and routes. Routes that the kernel adds with each address (local, broadcast, multicast) are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedNetwork {
    /// The addresses, in the kernel's order.
    pub addresses: Vec<Vec<u8>>,
    /// The routes, in the kernel's order.
    pub routes: Vec<Vec<u8>>,
}

/// A message as it is sent.
struct Raw<'a>(&'a [u8]);

impl Emitable for Raw<'_> {
    fn buffer_len(&self) -> usize {
        self.0.len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        buffer.copy_from_slice(self.0);
    }
}

impl Socket {
    /// The addresses and routes of a link.
    ///
    /// # Errors
    /// `is_not_found()` when the link is gone; `is_retryable()` when a list kept changing.
    pub fn saved_network(&mut self, index: u32) -> Result<SavedNetwork> {
        let failed = |cause: Cause| cause.during("save addresses and routes of link", index);
        let request = |message_type| Request { message_type, flags: 0 };
        let addresses = self.transport.list(request(RTM_GETADDR), &Raw(&address_request(index)), |payload| {
            Ok((payload.get(4..8) == Some(&index.to_ne_bytes())).then(|| payload.to_vec()))
        });
        let mut saved = SavedNetwork { addresses: addresses.map_err(failed)?, routes: Vec::new() };
        for family in [Family::Ipv4, Family::Ipv6] {
            let filter = RouteFilter::all(family).message();
            let kind = u8::from(wire_family(family));
            let routes = self.transport.list(request(RTM_GETROUTE), &filter, |payload| {
                Ok(if payload.first() == Some(&kind) { route(payload, index)? } else { None })
            });
            saved.routes.extend(routes.map_err(failed)?);
        }
        Ok(saved)
    }

    /// Adds what is missing of a link's addresses and routes, and removes link-local addresses that it did not have: the kernel
    /// makes some when IPv6 comes back to a link. Other programs' new addresses and routes stay. Says what failed.
    pub fn restore_network(&mut self, index: u32, saved: &SavedNetwork) -> Vec<Error> {
        let mut failures = Vec::new();
        match self.restore_addresses(index, saved) {
            Ok(()) => {}
            Err(error) => failures.push(error),
        }
        // A next hop needs the route to it, and that may come later in the list.
        for _ in 0..3 {
            match self.restore_routes(index, saved) {
                Ok(()) => return failures,
                Err(error) => failures.push(error),
            }
        }
        failures
    }

    fn restore_addresses(&mut self, index: u32, saved: &SavedNetwork) -> Result<()> {
        let current = self.saved_network(index)?.addresses;
        let held: Vec<Option<AddressKey>> = current.iter().map(|it| AddressKey::of(it)).collect();
        for (extra, key) in current.iter().zip(&held) {
            let is_saved = saved.addresses.iter().any(|it| AddressKey::of(it) == *key);
            if !is_saved && key.as_ref().is_some_and(AddressKey::is_link_local) {
                let request = Request { message_type: RTM_DELADDR, flags: 0 };
                self.transport.acknowledged(request, &Raw(extra)).map_err(|it| during(it, "remove", index))?;
            }
        }
        // Of addresses of the same scope the kernel lists the last one of IPv6 first.
        let missing = |family| {
            let of_family = move |it: &&Vec<u8>| it.first() == Some(&u8::from(wire_family(family)));
            saved.addresses.iter().filter(of_family).filter(|it| !held.contains(&AddressKey::of(it)))
        };
        for address in missing(Family::Ipv4).chain(missing(Family::Ipv6).rev()) {
            // It was this host's a moment ago: detection would make it unusable for a second. The second request takes the flag
            // back that says so.
            for flags in [libc::IFA_F_NODAD, 0] {
                let request = Request { message_type: RTM_NEWADDR, flags: NLM_F_CREATE | NLM_F_REPLACE };
                let message = with_address_flags(address, flags)?;
                self.transport.acknowledged(request, &Raw(&message)).map_err(|it| during(it, "restore", index))?;
            }
        }
        Ok(())
    }

    fn restore_routes(&mut self, index: u32, saved: &SavedNetwork) -> Result<()> {
        let current = self.saved_network(index)?.routes;
        let mut failure = None;
        for route in saved.routes.iter().filter(|it| !current.iter().any(|held| is_same_route(held, it))) {
            let place = RouteKey::of(route);
            let is_changed = current.iter().any(|held| RouteKey::of(held) == place);
            let flags = NLM_F_CREATE | if is_changed { NLM_F_REPLACE } else { NLM_F_EXCL };
            let request = Request { message_type: RTM_NEWROUTE, flags };
            match self.transport.acknowledged(request, &Raw(route)).map_err(|it| during(it, "restore", index)) {
                Err(error) if !error.is_already_exists() => failure = Some(error),
                _ => {}
            }
        }
        failure.map_or(Ok(()), Err)
    }
}

impl SavedNetwork {
    /// Whether a link has all of these addresses and routes, unless `current` has more.
    pub fn is_within(&self, current: &Self) -> bool {
        let has_address =
            |it: &Vec<u8>| current.addresses.iter().any(|held| AddressKey::of(held) == AddressKey::of(it));
        let has_route = |it: &Vec<u8>| current.routes.iter().any(|held| is_same_route(held, it));
        self.addresses.iter().all(has_address) && self.routes.iter().all(has_route)
    }
}

fn during(cause: Cause, operation: &'static str, index: u32) -> Error {
    cause.during(operation, format!("addresses and routes of link {index}"))
}

/// What makes an address the same one.
#[derive(Debug, PartialEq, Eq)]
struct AddressKey {
    address: IpAddr,
    prefix: u8,
}

impl AddressKey {
    fn of(payload: &[u8]) -> Option<Self> {
        let mut found = None;
        for attribute in attributes::after(payload, ADDRESS_HEADER) {
            match attribute.ok()? {
                (libc::IFA_LOCAL, value) => found = Some(attributes::address_of(value).ok()?),
                (libc::IFA_ADDRESS, value) if found.is_none() => found = Some(attributes::address_of(value).ok()?),
                _ => {}
            }
        }
        Some(Self { address: found?, prefix: *payload.get(1)? })
    }

    fn is_link_local(&self) -> bool {
        matches!(self.address, IpAddr::V6(address) if address.is_unicast_link_local())
    }
}

/// The place of a route in its table: one with the same is replaced.
#[derive(Debug, Default, PartialEq, Eq)]
struct RouteKey {
    head: Vec<u8>,
    destination: Vec<u8>,
    source: Vec<u8>,
    metric: Vec<u8>,
    table: Vec<u8>,
}

impl RouteKey {
    fn of(payload: &[u8]) -> Option<Self> {
        let mut key = Self { head: payload.get(..4)?.to_vec(), ..Self::default() };
        for attribute in attributes::after(payload, ROUTE_HEADER) {
            match attribute.ok()? {
                (libc::RTA_DST, value) => key.destination = value.to_vec(),
                (libc::RTA_SRC, value) => key.source = value.to_vec(),
                (libc::RTA_PRIORITY, value) => key.metric = value.to_vec(),
                (libc::RTA_TABLE, value) => key.table = value.to_vec(),
                _ => {}
            }
        }
        Some(key)
    }
}

/// Whether two are the same but for the time that is left.
fn is_same_route(one: &[u8], other: &[u8]) -> bool {
    let parts = |payload: &[u8]| -> Option<Vec<(u16, Vec<u8>)>> {
        let all = attributes::after(payload, ROUTE_HEADER).map(|it| it.map(|(kind, value)| (kind, value.to_vec())));
        let mut all: Vec<_> = all.collect::<Result<_, _>>().ok()?;
        all.retain(|(kind, _)| *kind != RTA_EXPIRES);
        all.sort();
        Some(all)
    };
    one.get(..ROUTE_HEADER) == other.get(..ROUTE_HEADER) && parts(one) == parts(other)
}

/// A request for the addresses of a link.
fn address_request(index: u32) -> Vec<u8> {
    [&[0; 4][..], &index.to_ne_bytes()].concat()
}

/// An address with these flags next to its own.
fn with_address_flags(payload: &[u8], more: u32) -> Result<Vec<u8>> {
    let mut message = payload.get(..ADDRESS_HEADER).unwrap_or_default().to_vec();
    let mut flags = u32::from(message.get(2).copied().unwrap_or(0));
    for attribute in attributes::after(payload, ADDRESS_HEADER) {
        let (kind, value) = attribute.map_err(|cause| cause.during("read", "a saved address"))?;
        match kind {
            libc::IFA_FLAGS => flags = value.first_chunk().map_or(flags, |bytes| u32::from_ne_bytes(*bytes)),
            _ => push(&mut message, kind, value),
        }
    }
    flags = flags & !DETECTION | more;
    if let (Some(byte), [low, ..]) = (message.get_mut(2), flags.to_le_bytes()) {
        *byte = low;
    }
    push(&mut message, libc::IFA_FLAGS, &flags.to_ne_bytes());
    Ok(message)
}

/// A listed route as it is requested, if it leads by the link and the kernel does not add it by itself.
fn route(payload: &[u8], index: u32) -> Result<Option<Vec<u8>>, Cause> {
    let Some(header) = payload.get(..ROUTE_HEADER) else { return Err(Cause::Malformed("short route message")) };
    let mut message = header.to_vec();
    let [_, _, _, _, _, _, _, kind, flags @ ..] = &mut message[..] else { return Ok(None) };
    let is_cached = flags.get(1).is_some_and(|flag| *flag & 2 != 0);
    let is_by_kernel = matches!(*kind, libc::RTN_LOCAL | libc::RTN_BROADCAST | libc::RTN_ANYCAST | libc::RTN_MULTICAST);
    let own = u32::from_ne_bytes(flags.first_chunk().copied().unwrap_or_default()) & u32::from(REQUESTED_FLAGS);
    flags.copy_from_slice(&own.to_ne_bytes());
    let mut leads_there = false;
    for attribute in attributes::after(payload, ROUTE_HEADER) {
        let (kind, value) = attribute?;
        match kind {
            libc::RTA_OIF => leads_there |= attributes::u32_of(value)? == index,
            libc::RTA_MULTIPATH => {
                let (hops, has_link) = next_hops(value, index);
                leads_there |= has_link;
                push(&mut message, kind, &hops);
                continue;
            }
            libc::RTA_CACHEINFO => {
                let left = value.get(8..12).map_or(Ok(0), attributes::u32_of)? / TICKS;
                if (1..u32::MAX / TICKS / 2).contains(&left) {
                    push(&mut message, RTA_EXPIRES, &left.to_ne_bytes());
                }
                continue;
            }
            _ => {}
        }
        push(&mut message, kind, value);
    }
    Ok((leads_there && !is_cached && !is_by_kernel).then_some(message))
}

/// Next hops without the flags that say how they are, and whether one leads by the link.
fn next_hops(value: &[u8], index: u32) -> (Vec<u8>, bool) {
    let (mut hops, mut has_link, mut at) = (value.to_vec(), false, 0);
    while let Some([low, high, flags, _, link @ ..]) = hops.get_mut(at..at + 8) {
        *flags &= REQUESTED_FLAGS;
        has_link |= link == index.to_ne_bytes();
        let length = usize::from(u16::from_ne_bytes([*low, *high])).next_multiple_of(4);
        if length == 0 {
            break;
        }
        at += length;
    }
    (hops, has_link)
}

fn push(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    message.extend(length.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(value);
    message.resize(message.len().next_multiple_of(4), 0);
}
