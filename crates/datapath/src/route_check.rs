//! Where the kernel routes packets of pods and of the host. Even when all of our objects are present, another program may have put
//! a route of a lower metric or a rule of a lower number before them. So the kernel is queried.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink::{Route, RouteKind, RoutedPacket, Rule, RuleAction};
use vcn::{Family, IfName, PROTOCOL, Priority, RulePriorities, TableId};

use crate::error::during;
use crate::host::{HostVnic, metadata_address};
use crate::pod::{PodNetwork, Uplink};
use crate::{Error, Places};

/// Destinations outside any VCN: addresses for documentation (RFC 5737, RFC 3849, RFC 9637). A host may have special routes for
/// some of them.
const OUTSIDE_V4: [Ipv4Addr; 3] =
    [Ipv4Addr::new(203, 0, 113, 157), Ipv4Addr::new(198, 51, 100, 157), Ipv4Addr::new(192, 0, 2, 157)];
const OUTSIDE_V6: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 157), Ipv6Addr::new(0x3fff, 0xfff, 0, 0, 0, 0, 0, 157)];

/// Packets that take a wrong route. Another program caused it, so it is only reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongRoute {
    /// The packets, in words.
    subject: String,
    found: String,
    /// The table of that route; none if they are refused.
    table: Option<TableId>,
    expected: String,
    /// The link that they come in by, their source and their destination.
    by: Option<IfName>,
    from: Option<IpAddr>,
    to: IpAddr,
}

impl WrongRoute {
    /// The table of the actual route; none if the packets are refused.
    pub const fn table(&self) -> Option<TableId> {
        self.table
    }

    /// The rule of another program that decides about these packets, given all rules of the family in the order in which the
    /// kernel reads them.
    pub fn cause<'a>(&self, rules: &'a [Rule]) -> Option<&'a Rule> {
        let precedes = |rule: &&Rule| rule.priority > LOCAL_ADDRESSES && rule.priority < RulePriorities::LAST;
        // A packet is also refused if the way back to its source is.
        let selects_answer = |rule: &Rule| {
            self.table.is_none()
                && self.by.is_some()
                && self.from.is_some_and(|to| rule.may_select(Some(self.to), to, None))
        };
        let selects = |rule: &&Rule| rule.may_select(self.from, self.to, self.by.as_ref()) || selects_answer(rule);
        // The kernel does not say which table a refusal is from.
        let decides = |rule: &&Rule| match self.table {
            Some(table) => rule.table == table && rule.action == RuleAction::Lookup,
            None => rule.action.refuses() || rule.protocol != PROTOCOL,
        };
        let first = rules.iter().filter(precedes).filter(selects).find(decides);
        first.filter(|rule| rule.protocol != PROTOCOL)
    }

    /// The family of the packets.
    pub fn family(&self) -> Family {
        Family::of(self.to)
    }
}

/// The kernel's own rule, of the table with the host's addresses.
const LOCAL_ADDRESSES: Priority = Priority(0);

impl fmt::Display for WrongRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { subject, found, expected, to, .. } = self;
        write!(f, "{subject} {found}, expected {expected}: ip route get {to}")?;
        self.from.map_or(Ok(()), |from| write!(f, " from {from}"))?;
        self.by.as_ref().map_or(Ok(()), |by| write!(f, " iif {by}"))
    }
}

/// Reads from the kernel the route of packets to and from each address of a pod. Only for a network that lacks no object: missing
/// objects cause wrong routes, too.
///
/// # Errors
/// [`Error::Observe`] when the kernel does not answer.
pub fn of_pod(network: &PodNetwork, uplinks: &[Uplink], places: &mut Places) -> Result<Vec<WrongRoute>, Error> {
    let (mut found, host_end) = (Vec::new(), &network.ends.host);
    for pod in &network.addresses {
        let family = Family::of(pod.address);
        let Some(uplink) = uplinks.iter().find(|it| it.family() == family) else { continue };
        let Uplink { link, router, .. } = uplink;
        let to_pod = ExpectedRoute {
            subject: format!("packets from {link} to {}", pod.address),
            by: Some(link),
            from: Some(*router),
            to: pod.address,
            link: host_end,
            next_hop: NextHop::Is(None),
        };
        let from_pod = |to| ExpectedRoute {
            subject: format!("packets from {}", pod.address),
            by: Some(host_end),
            from: Some(pod.address),
            to,
            link,
            next_hop: NextHop::Is(Some(*router)),
        };
        // A route that refuses packets to a pod also makes reverse path filtering refuse packets from it.
        found.extend(match to_pod.wrong_route(places)? {
            Some(wrong) => Some(wrong),
            None => outwards(family, from_pod, places)?,
        });
    }
    Ok(found)
}

/// The same of packets that the host sends from the address of a VNIC, where it has that, and to the networks behind it.
///
/// # Errors
/// [`Error::Observe`] when the kernel does not answer.
pub fn of_vnic(
    host: &HostVnic,
    is_assigned: impl Fn(IpAddr) -> bool,
    places: &mut Places,
) -> Result<Vec<WrongRoute>, Error> {
    let (mut found, link) = (Vec::new(), host.placement.link());
    for (family, at) in host.vnic.addressing.iter() {
        let expected = |subject, from, to, next_hop| ExpectedRoute { subject, by: None, from, to, link, next_hop };
        let from_own = |to| {
            let subject = format!("packets of the host from {}", at.address);
            expected(subject, Some(at.address), to, NextHop::Is(Some(at.router)))
        };
        if is_assigned(at.address) {
            found.extend(outwards(family, from_own, places)?);
        }
        for route in host.routes.iter().filter(|it| Family::of(it.destination.ip()) == family) {
            let subject = format!("packets of the host to {}", route.destination);
            let wrong = expected(subject, None, route.destination.network(), NextHop::Any).wrong_route(places)?;
            // Main may have a longer route: our own rule leads there.
            found.extend(wrong.filter(|it| it.table != Some(TableId::MAIN)));
        }
    }
    Ok(found)
}

/// The same of packets to the metadata service, which leave by the primary VNIC.
///
/// # Errors
/// [`Error::Observe`] when the kernel does not answer.
pub fn to_metadata(primary: &IfName, family: Family, places: &mut Places) -> Result<Option<WrongRoute>, Error> {
    let to = metadata_address(family);
    let subject = format!("packets to {to}");
    ExpectedRoute { subject, by: None, from: None, to, link: primary, next_hop: NextHop::Any }.wrong_route(places)
}

/// The wrong route of packets to outside, if all destinations have one: a host may have a special route for a single destination.
fn outwards<'a>(
    family: Family,
    expected: impl Fn(IpAddr) -> ExpectedRoute<'a>,
    places: &mut Places,
) -> Result<Option<WrongRoute>, Error> {
    let outside: Vec<IpAddr> = match family {
        Family::Ipv4 => OUTSIDE_V4.map(IpAddr::V4).into(),
        Family::Ipv6 => OUTSIDE_V6.map(IpAddr::V6).into(),
    };
    let mut last = None;
    for to in outside {
        last = expected(to).wrong_route(places)?;
        if last.is_none() {
            break;
        }
    }
    Ok(last)
}

/// A packet and its correct route.
struct ExpectedRoute<'a> {
    subject: String,
    by: Option<&'a IfName>,
    from: Option<IpAddr>,
    to: IpAddr,
    link: &'a IfName,
    next_hop: NextHop,
}

/// What is known of the next hop of a correct route.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NextHop {
    Any,
    Is(Option<IpAddr>),
}

impl ExpectedRoute<'_> {
    /// `None` if the route is correct. Also if a link is gone, which is reported elsewhere.
    fn wrong_route(self, places: &mut Places) -> Result<Option<WrongRoute>, Error> {
        let Self { subject, by, from, to, link, next_hop } = self;
        let during = during(format!("the route of {subject} ({to})"));
        let mut index = |name: &IfName| match places.host.index_of(name) {
            Err(error) if error.is_not_found() => Ok(None),
            found => found.map(Some).map_err(&during),
        };
        let (incoming, Some(outgoing)) = (by.map(&mut index).transpose()?, index(link)?) else { return Ok(None) };
        if incoming == Some(None) {
            return Ok(None);
        }
        let is_correct = |route: &Route| {
            let is_next = next_hop == NextHop::Any || next_hop == NextHop::Is(route.gateway);
            route.kind == RouteKind::Unicast && route.oif == outgoing && is_next
        };
        let (found, table) = match places.host.route_of(&RoutedPacket { by: incoming.flatten(), from, to }) {
            Ok(route) if is_correct(&route) => return Ok(None),
            Ok(route) => (describe(&route, places), Some(route.table)),
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => match error.errno() {
                Some(errno) if !error.is_retryable() => (format!("are refused ({})", errno.desc()), None),
                _ => return Err(during(error)),
            },
        };
        let expected = match next_hop {
            NextHop::Is(Some(via)) => format!("{link} via {via}"),
            NextHop::Is(None) | NextHop::Any => link.to_string(),
        };
        Ok(Some(WrongRoute { subject, found, table, expected, by: by.cloned(), from, to }))
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
