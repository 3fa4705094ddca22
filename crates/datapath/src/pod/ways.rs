//! Where the kernel leads a pod's packets. That all is there that a pod needs says nothing of what others put before it: a route
//! of a lower metric, a rule of a lower number. So the kernel is asked, for each address in both directions.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink::{Arriving, Route, RouteKind};
use vcn::{Family, IfName};

use super::{Carrier, PodAddress, PodNetwork};
use crate::{Error, Places};

/// Somewhere outside, behind every router: addresses of no VCN (documentation: RFC 5737, RFC 3849, RFC 9637). A host may have
/// uses of its own for some of them.
const OUTSIDE_V4: [Ipv4Addr; 3] =
    [Ipv4Addr::new(203, 0, 113, 157), Ipv4Addr::new(198, 51, 100, 157), Ipv4Addr::new(192, 0, 2, 157)];
const OUTSIDE_V6: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 157), Ipv6Addr::new(0x3fff, 0xfff, 0, 0, 0, 0, 0, 157)];

/// Packets of a pod that do not go where they should. Who leads them away is somebody else, so it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Astray {
    /// Which, in words.
    subject: String,
    /// What becomes of them.
    found: String,
    /// Which way they should go.
    wanted: String,
    /// One of them, as it is asked for.
    packet: String,
}

impl fmt::Display for Astray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { subject, found, wanted, packet } = self;
        write!(f, "{subject} {found}, not by {wanted}: ip route get {packet}")
    }
}

/// Asks where packets to and from each address of a pod go. For a network that has all that it needs: where something is
/// missing, packets go astray for that.
///
/// # Errors
/// [`Error::Observe`] when the kernel does not answer.
pub fn astray(network: &PodNetwork, carriers: &[Carrier], places: &mut Places) -> Result<Vec<Astray>, Error> {
    let mut found = Vec::new();
    for pod in &network.addresses {
        let Some(carrier) = carriers.iter().find(|it| it.family() == Family::of(pod.address)) else { continue };
        // What refuses packets to a pod may have the kernel doubt those from it.
        found.extend(match Way::to(pod, carrier, &network.ends.host).ask(places)? {
            Some(astray) => Some(astray),
            None => outwards(pod, carrier, &network.ends.host, places)?,
        });
    }
    Ok(found)
}

/// What becomes of packets to everywhere outside: those to one destination may be somebody's business here, and nearly always the
/// first goes its way.
fn outwards(
    pod: &PodAddress,
    carrier: &Carrier,
    host_end: &IfName,
    places: &mut Places,
) -> Result<Option<Astray>, Error> {
    let outside: Vec<IpAddr> = match carrier.family() {
        Family::Ipv4 => OUTSIDE_V4.map(IpAddr::V4).into(),
        Family::Ipv6 => OUTSIDE_V6.map(IpAddr::V6).into(),
    };
    let mut last = None;
    for to in outside {
        last = Way::from(pod, carrier, host_end, to).ask(places)?;
        if last.is_none() {
            break;
        }
    }
    Ok(last)
}

/// A packet, and the way that it should go.
struct Way<'a> {
    subject: String,
    by: &'a IfName,
    from: IpAddr,
    to: IpAddr,
    link: &'a IfName,
    via: Option<IpAddr>,
}

impl<'a> Way<'a> {
    fn to(pod: &'a PodAddress, carrier: &'a Carrier, host_end: &'a IfName) -> Self {
        let subject = format!("what comes by {} for {}", carrier.link, pod.address);
        Self { subject, by: &carrier.link, from: carrier.router, to: pod.address, link: host_end, via: None }
    }

    fn from(pod: &'a PodAddress, carrier: &'a Carrier, host_end: &'a IfName, to: IpAddr) -> Self {
        let subject = format!("what {} sends", pod.address);
        Self { subject, by: host_end, from: pod.address, to, link: &carrier.link, via: Some(carrier.router) }
    }

    /// Nothing where the packet goes its way, or a link is gone, which is told as that.
    fn ask(self, places: &mut Places) -> Result<Option<Astray>, Error> {
        let Self { subject, by, from, to, link, via } = self;
        let packet = format!("{to} from {from} iif {by}");
        let during = |source| Error::Observe { what: format!("the way of {packet}"), source };
        let mut index = |name: &IfName| match places.host.index_of(name) {
            Err(error) if error.is_not_found() => Ok(None),
            found => found.map(Some).map_err(during),
        };
        let (Some(incoming), Some(outgoing)) = (index(by)?, index(link)?) else { return Ok(None) };
        let found = match places.host.route_of(&Arriving { by: incoming, from, to }) {
            Ok(route) if route.kind == RouteKind::Unicast && route.oif == outgoing && route.gateway == via => {
                return Ok(None);
            }
            Ok(route) => led(&route, places),
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => match error.errno() {
                Some(errno) if !error.is_retryable() => format!("is refused ({})", errno.desc()),
                _ => return Err(during(error)),
            },
        };
        let wanted = via.map_or_else(|| link.to_string(), |via| format!("{link} via {via}"));
        Ok(Some(Astray { subject, found, wanted, packet }))
    }
}

/// Where a route leads, with its table: that is where to look for it.
fn led(route: &Route, places: &mut Places) -> String {
    let way = match route.kind {
        RouteKind::Local => "goes to the host itself".to_owned(),
        // Most kernels answer that by an error number.
        RouteKind::Blackhole | RouteKind::Unreachable | RouteKind::Prohibit => "is refused".to_owned(),
        RouteKind::Unicast | RouteKind::Throw | RouteKind::Other(_) => {
            let link = places.host.link_at(route.oif).map_or_else(|_| route.oif.to_string(), |it| it.name.to_string());
            let via = route.gateway.map(|gateway| format!(" via {gateway}")).unwrap_or_default();
            format!("goes by {link}{via}")
        }
    };
    format!("{way} (table {})", route.table)
}
