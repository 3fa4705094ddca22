//! Queries the kernel for the route that a packet would take. The answer considers all policy rules and routes, of any program.

use std::fmt;
use std::net::IpAddr;

use netlink_packet_route::route::{RouteAttribute, RouteFlags, RouteMessage};
use vcn::Family;

use super::{RTM_GETROUTE, Route, header, wire_family};
use crate::error::{Cause, Result};
use crate::routing::socket::Socket;
use crate::wire::transport::Request;

/// A packet that comes in by a link, or that this host sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoutedPacket {
    /// The index of the link that it comes in by.
    pub by: Option<u32>,
    /// Its source, or `None` for what the kernel would choose.
    pub from: Option<IpAddr>,
    /// Its destination, of the same family.
    pub to: IpAddr,
}

impl RoutedPacket {
    fn message(self) -> RouteMessage {
        let family = Family::of(self.to);
        let mut message = RouteMessage::default();
        message.header.address_family = wire_family(family);
        message.header.destination_prefix_length = family.host_prefix();
        // IPv6 always returns the table, and rejects this flag.
        message.header.flags.set(RouteFlags::LookupTable, family == Family::Ipv4);
        message.attributes.push(RouteAttribute::Destination(self.to.into()));
        if let Some(from) = self.from {
            message.header.source_prefix_length = family.host_prefix();
            message.attributes.push(RouteAttribute::Source(from.into()));
        }
        message.attributes.extend(self.by.map(RouteAttribute::Iif));
        message
    }
}

impl fmt::Display for RoutedPacket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to.fmt(f)?;
        self.from.map_or(Ok(()), |from| write!(f, " from {from}"))?;
        self.by.map_or(Ok(()), |by| write!(f, " iif {by}"))
    }
}

impl Socket {
    /// The route that a packet takes: link, next hop, table and preferred source. Its other parts are the packet's (the
    /// destination is a single address).
    ///
    /// # Errors
    /// Where the kernel would not send the packet, mostly with one of these error numbers:
    /// - `EINVAL`: an IPv4 blackhole, a source that reverse-path filtering refuses, or for an outgoing IPv4 packet a source that
    ///   this host does not have
    /// - `EACCES`: a prohibition
    /// - `EHOSTUNREACH` or `ENETUNREACH`: no route
    ///
    /// `is_not_found()` when there is no such link.
    pub fn route_of(&mut self, packet: &RoutedPacket) -> Result<Route> {
        let decode = |payload: &[u8]| {
            let route = Route::read(&header(payload)?, payload)?;
            route.ok_or(Cause::Malformed("a route of no family that was requested"))
        };
        let request = Request { message_type: RTM_GETROUTE, flags: 0 };
        self.transport
            .one(request, &packet.message(), decode)
            .map_err(|cause| cause.during("find the route of", packet))
    }
}
