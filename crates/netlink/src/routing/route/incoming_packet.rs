//! Which way the kernel would send a packet: a question about one, which it answers as it would do with the packet, all policy
//! rules and routes considered, by any program.

use std::fmt;
use std::net::IpAddr;

use netlink_packet_route::route::{RouteAttribute, RouteFlags, RouteMessage};
use vcn::Family;

use super::{RTM_GETROUTE, Route, header, wire_family};
use crate::error::{Cause, Result};
use crate::routing::socket::Socket;
use crate::wire::transport::Request;

/// A packet that comes in by a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IncomingPacket {
    /// The link's index.
    pub by: u32,
    /// Its source.
    pub from: IpAddr,
    /// Its destination, of the same family.
    pub to: IpAddr,
}

impl IncomingPacket {
    fn message(self) -> RouteMessage {
        let family = Family::of(self.to);
        let mut message = RouteMessage::default();
        message.header.address_family = wire_family(family);
        message.header.source_prefix_length = family.host_prefix();
        message.header.destination_prefix_length = family.host_prefix();
        // IPv6 says it in any case, and refuses to be asked for it.
        message.header.flags.set(RouteFlags::LookupTable, family == Family::Ipv4);
        message.attributes = vec![
            RouteAttribute::Destination(self.to.into()),
            RouteAttribute::Source(self.from.into()),
            RouteAttribute::Iif(self.by),
        ];
        message
    }
}

impl fmt::Display for IncomingPacket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} from {} iif {}", self.to, self.from, self.by)
    }
}

impl Socket {
    /// The route that a packet takes: link, next hop and table. Its other parts are the packet's (the destination is a single
    /// address).
    ///
    /// # Errors
    /// Where the kernel would not send it on it mostly says so by an error number: `EINVAL` for a blackhole of IPv4 or a source that it
    /// does not believe, `EACCES` for a prohibition, `EHOSTUNREACH` or `ENETUNREACH` where there is no way. `is_not_found()` when
    /// there is no such link.
    pub fn route_of(&mut self, packet: &IncomingPacket) -> Result<Route> {
        let decode = |payload: &[u8]| {
            let route = Route::read(&header(payload)?, payload)?;
            route.ok_or(Cause::Malformed("a route of no family that was asked for"))
        };
        let request = Request { message_type: RTM_GETROUTE, flags: 0 };
        self.transport
            .one(request, &packet.message(), decode)
            .map_err(|cause| cause.during("find the route of", packet))
    }
}
