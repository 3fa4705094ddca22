//! Where the kernel routes a pod's packets. Even when all objects of a pod are present, another program may have put a route of
//! a lower metric or a rule of a lower number before them. So the kernel is asked, for each address in both directions.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink::{Route, RouteKind, RoutedPacket};
use vcn::{Family, IfName};

use super::{PodAddress, PodNetwork, Uplink};
use crate::error::during;
use crate::{Error, Places};

/// Destinations outside any VCN: addresses for documentation (RFC 5737, RFC 3849, RFC 9637). A host may have special routes for
/// some of them.
const OUTSIDE_V4: [Ipv4Addr; 3] =
    [Ipv4Addr::new(203, 0, 113, 157), Ipv4Addr::new(198, 51, 100, 157), Ipv4Addr::new(192, 0, 2, 157)];
const OUTSIDE_V6: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 157), Ipv6Addr::new(0x3fff, 0xfff, 0, 0, 0, 0, 0, 157)];

/// Packets of a pod that take a wrong route. Another program caused it, so it is only reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongRoute {
    /// The packets, in words.
    subject: String,
    /// Their actual route.
    found: String,
    /// Their correct route.
    wanted: String,
    /// One of them, as arguments of `ip route get`.
    packet: String,
}

impl fmt::Display for WrongRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { subject, found, wanted, packet } = self;
        write!(f, "{subject} {found}, expected {wanted}: ip route get {packet}")
    }
}

/// Asks the kernel for the route of packets to and from each address of a pod. Only for a network that lacks no object: missing
/// objects cause wrong routes, too.
///
/// # Errors
/// [`Error::Observe`] when the kernel does not answer.
pub fn wrong_routes(network: &PodNetwork, uplinks: &[Uplink], places: &mut Places) -> Result<Vec<WrongRoute>, Error> {
    let mut found = Vec::new();
    for pod in &network.addresses {
        let Some(uplink) = uplinks.iter().find(|it| it.family() == Family::of(pod.address)) else { continue };
        // A route that refuses packets to a pod also makes reverse path filtering refuse packets from it.
        found.extend(match ExpectedRoute::to(pod, uplink, &network.ends.host).ask(places)? {
            Some(wrong) => Some(wrong),
            None => outwards(pod, uplink, &network.ends.host, places)?,
        });
    }
    Ok(found)
}

/// The wrong route of packets to outside, if all destinations have one: a host may have a special route for a single destination.
fn outwards(
    pod: &PodAddress,
    uplink: &Uplink,
    host_end: &IfName,
    places: &mut Places,
) -> Result<Option<WrongRoute>, Error> {
    let outside: Vec<IpAddr> = match uplink.family() {
        Family::Ipv4 => OUTSIDE_V4.map(IpAddr::V4).into(),
        Family::Ipv6 => OUTSIDE_V6.map(IpAddr::V6).into(),
    };
    let mut last = None;
    for to in outside {
        last = ExpectedRoute::from(pod, uplink, host_end, to).ask(places)?;
        if last.is_none() {
            break;
        }
    }
    Ok(last)
}

/// A packet and its correct route.
struct ExpectedRoute<'a> {
    subject: String,
    by: &'a IfName,
    from: IpAddr,
    to: IpAddr,
    link: &'a IfName,
    via: Option<IpAddr>,
}

impl<'a> ExpectedRoute<'a> {
    fn to(pod: &'a PodAddress, uplink: &'a Uplink, host_end: &'a IfName) -> Self {
        let subject = format!("packets from {} to {}", uplink.link, pod.address);
        Self { subject, by: &uplink.link, from: uplink.router, to: pod.address, link: host_end, via: None }
    }

    fn from(pod: &'a PodAddress, uplink: &'a Uplink, host_end: &'a IfName, to: IpAddr) -> Self {
        let subject = format!("packets from {}", pod.address);
        Self { subject, by: host_end, from: pod.address, to, link: &uplink.link, via: Some(uplink.router) }
    }

    /// `None` if the route is correct. Also if a link is gone, which is reported elsewhere.
    fn ask(self, places: &mut Places) -> Result<Option<WrongRoute>, Error> {
        let Self { subject, by, from, to, link, via } = self;
        let packet = format!("{to} from {from} iif {by}");
        let during = during(format!("the route of {packet}"));
        let mut index = |name: &IfName| match places.host.index_of(name) {
            Err(error) if error.is_not_found() => Ok(None),
            found => found.map(Some).map_err(&during),
        };
        let (Some(incoming), Some(outgoing)) = (index(by)?, index(link)?) else { return Ok(None) };
        let found = match places.host.route_of(&RoutedPacket { by: Some(incoming), from: Some(from), to }) {
            Ok(route) if route.kind == RouteKind::Unicast && route.oif == outgoing && route.gateway == via => {
                return Ok(None);
            }
            Ok(route) => describe(&route, places),
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => match error.errno() {
                Some(errno) if !error.is_retryable() => format!("are refused ({})", errno.desc()),
                _ => return Err(during(error)),
            },
        };
        let wanted = via.map_or_else(|| link.to_string(), |via| format!("{link} via {via}"));
        Ok(Some(WrongRoute { subject, found, wanted, packet }))
    }
}

/// A route in words, with the table that it is in.
fn describe(route: &Route, places: &mut Places) -> String {
    let way = match route.kind {
        RouteKind::Local => "reach the host itself".to_owned(),
        // Most kernels return an error number for these.
        RouteKind::Blackhole | RouteKind::Unreachable | RouteKind::Prohibit => "are refused".to_owned(),
        RouteKind::Unicast | RouteKind::Throw | RouteKind::Other(_) => {
            let link = places.host.link_at(route.oif).map_or_else(|_| route.oif.to_string(), |it| it.name.to_string());
            let via = route.gateway.map(|gateway| format!(" via {gateway}")).unwrap_or_default();
            format!("use {link}{via}")
        }
    };
    format!("{way} (table {})", route.table)
}
