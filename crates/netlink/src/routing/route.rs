//! Routes.

use std::fmt;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netlink_packet_core::Emitable;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::{
    RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric, RouteProtocol, RouteScope, RouteType, RouteVia,
};
use nix::errno::Errno;
use vcn::{Family, Mtu, TableId};

use crate::error::{Cause, Result};
use crate::routing::socket::{Socket, Write};
use crate::wire::attributes;
use crate::wire::transport::Request;

mod routed_packet;

pub use routed_packet::RoutedPacket;

const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_GETROUTE: u16 = 26;
const RTAX_MTU: u16 = 2;
// Not every C library's headers have these.
const RTA_VIA: u16 = 18;
const RTA_ENCAP: u16 = 22;
const RTA_NH_ID: u16 = 30;

/// What the kernel makes of an IPv6 route without a metric (IP6_RT_PRIO_USER).
const IPV6_DEFAULT_METRIC: u32 = 1024;

/// A route. One that was added and is read back is equal to what was requested.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// Where to; `0.0.0.0/0` or `::/0` is the default route.
    pub destination: IpNetwork,
    /// What it does with a packet.
    pub kind: RouteKind,
    /// The next hop; none on the link itself.
    pub gateway: Option<IpAddr>,
    /// The outgoing link's index; 0 of a route that leads nowhere.
    pub oif: u32,
    /// The table it is in.
    pub table: TableId,
    /// The preferred source address.
    pub source: Option<IpAddr>,
    /// The next hop is taken to be on the link, whatever the addresses say.
    pub onlink: bool,
    /// IPv4: the destination is on the link itself. IPv6 has no such notion; read back it is always false.
    pub scope_link: bool,
    /// The number of the program that made it.
    pub protocol: u8,
    /// The metric, as given: IPv6's default of 1024 is read back as `None`. [`Route::metric`] orders routes.
    pub priority: Option<u32>,
    /// An MTU of its own.
    pub mtu: Option<Mtu>,
    /// Read only: it has something that this type does not hold (several next hops, an encapsulation, a TOS, a source
    /// prefix). So it is not our route and cannot be written back.
    pub unmodeled: bool,
}

/// What a route does with a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RouteKind {
    /// Sends the packet to the next hop.
    #[default]
    Unicast,
    /// Delivers it to this host.
    Local,
    /// Drops the packet without an error.
    Blackhole,
    /// Drops the packet and answers "host unreachable".
    Unreachable,
    /// Drops the packet and answers "administratively prohibited".
    Prohibit,
    /// Goes on with the next rule.
    Throw,
    /// Broadcast, anycast, multicast and others of the kernel's own, by their number.
    Other(u8),
}

/// Which routes to list. The kernel leaves out the others, so a filter makes a list cheap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteFilter {
    /// Only routes of this family.
    pub family: Family,
    /// In this table; all tables when `None`.
    pub table: Option<TableId>,
    /// Made by this protocol.
    pub protocol: Option<u8>,
    /// Leaving by this link.
    pub oif: Option<u32>,
}

impl RouteFilter {
    /// All routes of a family.
    pub const fn all(family: Family) -> Self {
        Self { family, table: None, protocol: None, oif: None }
    }

    pub(crate) fn message(self) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header.address_family = wire_family(self.family);
        message.header.protocol = RouteProtocol::from(self.protocol.unwrap_or(0));
        message.attributes.extend(self.table.map(|TableId(table)| RouteAttribute::Table(table)));
        message.attributes.extend(self.oif.map(RouteAttribute::Oif));
        message
    }
}

impl Route {
    /// A unicast route by a link, with nothing else set.
    pub const fn new(destination: IpNetwork, oif: u32, table: TableId, protocol: u8) -> Self {
        Self {
            destination,
            kind: RouteKind::Unicast,
            gateway: None,
            oif,
            table,
            source: None,
            onlink: false,
            scope_link: false,
            protocol,
            priority: None,
            mtu: None,
            unmodeled: false,
        }
    }

    /// The family of its destination.
    pub fn family(&self) -> Family {
        Family::of(self.destination.ip())
    }

    /// The metric that counts: lower is preferred.
    pub fn metric(&self) -> u32 {
        let unset = if self.family() == Family::Ipv6 { IPV6_DEFAULT_METRIC } else { 0 };
        self.priority.unwrap_or(unset)
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Option<Self>, Cause> {
        let header = header(payload)?;
        // Multicast routing's own entries and cached exceptions come by the same messages.
        if header.flags.contains(RouteFlags::Cloned) {
            return Ok(None);
        }
        Self::read(&header, payload)
    }

    fn read(header: &RouteHeader, payload: &[u8]) -> Result<Option<Self>, Cause> {
        let family = match header.address_family {
            AddressFamily::Inet => Family::Ipv4,
            AddressFamily::Inet6 => Family::Ipv6,
            _ => return Ok(None),
        };
        let mut destination = attributes::any(family);
        let mut route =
            Self::new(IpNetwork::from(destination), 0, TableId(header.table.into()), header.protocol.into());
        route.kind = RouteKind::from(u8::from(header.kind));
        route.onlink = header.flags.contains(RouteFlags::Onlink);
        route.scope_link = family == Family::Ipv4 && header.scope == RouteScope::Link;
        route.unmodeled = header.tos != 0 || header.source_prefix_length != 0;
        for attribute in attributes::after(payload, header.buffer_len()) {
            match attribute? {
                (libc::RTA_DST, value) => destination = attributes::address_of(value)?,
                (libc::RTA_GATEWAY, value) => route.gateway = Some(attributes::address_of(value)?),
                // A family number of two bytes, then the address.
                (RTA_VIA, value) => {
                    route.gateway = Some(attributes::address_of(value.get(2..).unwrap_or_default())?);
                }
                (libc::RTA_OIF, value) => route.oif = attributes::u32_of(value)?,
                (libc::RTA_TABLE, value) => route.table = TableId(attributes::u32_of(value)?),
                (libc::RTA_PREFSRC, value) => route.source = Some(attributes::address_of(value)?),
                (libc::RTA_PRIORITY, value) => route.priority = Some(attributes::u32_of(value)?),
                (libc::RTA_METRICS, value) => route.decode_metrics(value)?,
                (libc::RTA_MULTIPATH | RTA_ENCAP | RTA_NH_ID, _) => route.unmodeled = true,
                _ => {}
            }
        }
        if family == Family::Ipv6 && route.priority == Some(IPV6_DEFAULT_METRIC) {
            route.priority = None;
        }
        route.destination = attributes::network(destination, header.destination_prefix_length)?;
        Ok(Some(route))
    }

    fn decode_metrics(&mut self, value: &[u8]) -> Result<(), Cause> {
        for attribute in attributes::within(value) {
            if let (RTAX_MTU, value) = attribute? {
                self.mtu = Some(Mtu(attributes::u32_of(value)?));
            }
        }
        Ok(())
    }

    pub(crate) fn message(&self) -> RouteMessage {
        let mut message = RouteMessage::default();
        let header = &mut message.header;
        header.address_family = wire_family(self.family());
        header.destination_prefix_length = self.destination.prefix();
        header.protocol = RouteProtocol::from(self.protocol);
        header.scope =
            if self.scope_link && self.family() == Family::Ipv4 { RouteScope::Link } else { RouteScope::Universe };
        header.kind = RouteType::from(u8::from(self.kind));
        header.flags.set(RouteFlags::Onlink, self.onlink);
        let attributes = &mut message.attributes;
        attributes.reserve(7);
        // Table numbers above 255 do not fit the header, so the attribute is always used.
        attributes.push(RouteAttribute::Table(self.table.0));
        if self.destination.prefix() != 0 {
            attributes.push(RouteAttribute::Destination(self.destination.network().into()));
        }
        match (self.gateway, self.family()) {
            (Some(IpAddr::V6(gateway)), Family::Ipv4) => {
                attributes.push(RouteAttribute::Via(RouteVia::Inet6(gateway)));
            }
            (Some(gateway), _) => attributes.push(RouteAttribute::Gateway(gateway.into())),
            (None, _) => {}
        }
        if self.oif != 0 {
            attributes.push(RouteAttribute::Oif(self.oif));
        }
        attributes.extend(self.source.map(|source| RouteAttribute::PrefSource(source.into())));
        attributes.extend(self.priority.map(RouteAttribute::Priority));
        attributes.extend(self.mtu.map(|Mtu(bytes)| RouteAttribute::Metrics(vec![RouteMetric::Mtu(bytes)])));
        message
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            RouteKind::Unicast => {}
            RouteKind::Local => f.write_str("local ")?,
            RouteKind::Blackhole => f.write_str("blackhole ")?,
            RouteKind::Unreachable => f.write_str("unreachable ")?,
            RouteKind::Prohibit => f.write_str("prohibit ")?,
            RouteKind::Throw => f.write_str("throw ")?,
            RouteKind::Other(number) => write!(f, "type {number} ")?,
        }
        if self.destination.prefix() == 0 {
            f.write_str("default")?;
        } else {
            self.destination.fmt(f)?;
        }
        if let Some(gateway) = self.gateway {
            write!(f, " via {gateway}")?;
        }
        if self.oif != 0 {
            write!(f, " dev {}", self.oif)?;
        }
        write!(f, " table {}", self.table)?;
        if let Some(source) = self.source {
            write!(f, " src {source}")?;
        }
        if let Some(priority) = self.priority {
            write!(f, " metric {priority}")?;
        }
        if let Some(mtu) = self.mtu {
            write!(f, " mtu {mtu}")?;
        }
        f.write_str(if self.onlink { " onlink" } else { "" })
    }
}

impl From<u8> for RouteKind {
    fn from(number: u8) -> Self {
        match number {
            libc::RTN_UNICAST => Self::Unicast,
            libc::RTN_LOCAL => Self::Local,
            libc::RTN_BLACKHOLE => Self::Blackhole,
            libc::RTN_UNREACHABLE => Self::Unreachable,
            libc::RTN_PROHIBIT => Self::Prohibit,
            libc::RTN_THROW => Self::Throw,
            number => Self::Other(number),
        }
    }
}

impl From<RouteKind> for u8 {
    fn from(kind: RouteKind) -> Self {
        match kind {
            RouteKind::Unicast => libc::RTN_UNICAST,
            RouteKind::Local => libc::RTN_LOCAL,
            RouteKind::Blackhole => libc::RTN_BLACKHOLE,
            RouteKind::Unreachable => libc::RTN_UNREACHABLE,
            RouteKind::Prohibit => libc::RTN_PROHIBIT,
            RouteKind::Throw => libc::RTN_THROW,
            RouteKind::Other(number) => number,
        }
    }
}

impl Socket {
    /// The routes that pass a filter; none when the table does not exist.
    ///
    /// # Errors
    /// `is_not_found()` when the filter's link is gone; `is_retryable()` when the list kept changing.
    pub fn routes(&mut self, filter: &RouteFilter) -> Result<Vec<Route>> {
        let listed =
            self.transport.list(Request { message_type: RTM_GETROUTE, flags: 0 }, &filter.message(), |payload| {
                Ok(Route::decode(payload)?.filter(|route| filter.passes(route)))
            });
        match listed {
            // The kernel makes tables as routes need them, and says so of one that it has not made.
            Err(Cause::Refused(refusal)) if filter.table.is_some() && refusal.errno == Errno::ENOENT => Ok(Vec::new()),
            listed => listed.map_err(|cause| cause.during("list routes of", filter.family)),
        }
    }

    /// Adds a route.
    ///
    /// # Errors
    /// `is_already_exists()` when the table has one for this destination and metric.
    pub fn add_route(&mut self, route: &Route) -> Result<()> {
        self.write(Write::Add(RTM_NEWROUTE), &route.message(), "add route", route)
    }

    /// Adds a route in place of the one for the same destination and metric in its table, if any.
    ///
    /// # Errors
    /// When the kernel refuses it, with its reason (`Nexthop has invalid gateway`).
    pub fn replace_route(&mut self, route: &Route) -> Result<()> {
        self.write(Write::Replace(RTM_NEWROUTE), &route.message(), "replace route", route)
    }

    /// Removes a route. One whose protocol, next hop or link differs is left alone.
    ///
    /// # Errors
    /// `is_not_found()` when it is not there.
    pub fn delete_route(&mut self, route: &Route) -> Result<()> {
        self.write(Write::Existing(RTM_DELROUTE), &route.message(), "delete route", route)
    }
}

impl RouteFilter {
    /// Kernels differ in what they filter. None filters the routes of a link that has several next hops. One without
    /// IPv6 answers a question about IPv6 with the routes of all families.
    fn passes(&self, route: &Route) -> bool {
        route.family() == self.family
            && self.table.is_none_or(|table| table == route.table)
            && self.protocol.is_none_or(|protocol| protocol == route.protocol)
            && self.oif.is_none_or(|oif| oif == route.oif || route.unmodeled)
    }
}

fn header(payload: &[u8]) -> Result<RouteHeader, Cause> {
    RouteHeader::parse(payload).map_err(|_| Cause::Malformed("short route message"))
}

pub(crate) const fn wire_family(family: Family) -> AddressFamily {
    match family {
        Family::Ipv4 => AddressFamily::Inet,
        Family::Ipv6 => AddressFamily::Inet6,
    }
}
