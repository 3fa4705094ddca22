//! Which way the kernel would send a packet of this host.

use std::fmt;
use std::net::IpAddr;

use netlink_packet_route::route::{RouteAttribute, RouteFlags, RouteMessage};
use vcn::Family;

use super::{RTM_GETROUTE, Route, header, wire_family};
use crate::error::{Cause, Result};
use crate::routing::socket::Socket;
use crate::wire::transport::Request;

/// A packet that this host sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutgoingPacket {
    /// Its source, an address of this host; the kernel's choice if `None`.
    pub from: Option<IpAddr>,
    /// Its destination, of the same family.
    pub to: IpAddr,
}

impl OutgoingPacket {
    fn message(self) -> RouteMessage {
        let family = Family::of(self.to);
        let mut message = RouteMessage::default();
        message.header.address_family = wire_family(family);
        message.header.destination_prefix_length = family.host_prefix();
        message.header.flags.set(RouteFlags::LookupTable, family == Family::Ipv4);
        message.attributes.push(RouteAttribute::Destination(self.to.into()));
        if let Some(from) = self.from {
            message.header.source_prefix_length = family.host_prefix();
            message.attributes.push(RouteAttribute::Source(from.into()));
        }
        message
    }
}

impl fmt::Display for OutgoingPacket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.from {
            Some(from) => write!(f, "{} from {from}", self.to),
            None => write!(f, "{}", self.to),
        }
    }
}

impl Socket {
    /// The route that a packet of this host takes: link, next hop and preferred source.
    ///
    /// # Errors
    /// As [`Socket::route_of`]; `EINVAL` of IPv4 also where the source is no address of this host.
    pub fn route_out(&mut self, packet: &OutgoingPacket) -> Result<Route> {
        let decode = |payload: &[u8]| {
            let route = Route::read(&header(payload)?, payload)?;
            route.ok_or(Cause::Malformed("a route of no family that was asked for"))
        };
        let request = Request { message_type: RTM_GETROUTE, flags: 0 };
        let found = self.transport.one(request, &packet.message(), decode);
        found.map_err(|cause| cause.during("find the route of", packet))
    }
}
