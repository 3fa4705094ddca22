//! Observes an attachment's network: our objects only.

use std::fmt;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netlink::{NeighbourFilter, RouteFilter, Rule, Socket};
use vcn::{Family, IfName, LINK_ALIAS_PREFIX, MacAddr, PODS_TABLE, PROTOCOL, RulePriorities, TableId};

use super::{LINK_LOCAL_GATEWAY, LOOPBACK, LinkEnds, PodNetwork, desired, disable_ipv6, gateway, owners};
use crate::error::during;
use crate::object::rule_seen;
use crate::{
    AddressSpec, Error, LinkKind, LinkSpec, NeighbourSpec, Object, Place, Places, RouteSpec, SysctlSpec, VethPeer,
};

/// Observes all objects of an attachment: its link ends with their routes and neighbours, and the rules and proxy neighbours of
/// its addresses. Its addresses are those `held` by the allocation and those with a route to its host end, so a missing or stale
/// record hides nothing. An address with a route to another pod's link belongs to that pod, whatever a record says, with its
/// rules and proxies.
///
/// Objects of other programs on the links are left out: addresses of no pod, and routes and neighbours without our protocol number.
///
/// # Errors
/// [`Error::Observe`] when the kernel does not answer; [`Error::Collision`] when another program's link has the host name.
pub fn observe(ends: &LinkEnds, mut held: Vec<IpAddr>, places: &mut Places) -> Result<Vec<(Place, Object)>, Error> {
    let mut found = Vec::new();
    let owners = owners(places)?;
    held.retain(|address| !owners.iter().any(|owner| owner.address == *address && owner.link != ends.host));
    if let Some(HostEnd { index, accept_ra, link }) = host_end(ends, &mut places.host)? {
        found.push((Place::Host, Object::Link(link)));
        found.push((Place::Host, Object::Sysctl(accept_ra_of(&ends.host, accept_ra))));
        found.extend(switched_off(Place::Host, ends.host.as_str(), places));
        let on_host = carried(&ends.host, index, PODS_TABLE, &[], &mut places.host)?;
        for object in &on_host {
            if let Object::Route(route) = object
                && !held.contains(&route.destination.ip())
            {
                held.push(route.destination.ip());
            }
        }
        // The pod end comes before the host's routes, in the order of creation.
        found.extend(pod_end(ends, index, &held, places)?);
        found.extend(gateways_on(&ends.host, index, &held, &mut places.host)?.map(|object| (Place::Host, object)));
        found.extend(on_host.into_iter().map(|object| (Place::Host, object)));
    }
    found.extend(proxies(&held, &mut places.host)?.into_iter().map(|object| (Place::Host, object)));
    found.extend(rules(&held, &mut places.host)?.into_iter().map(|object| (Place::Host, object)));
    Ok(found)
}

/// The objects to take down for a recorded network: the link if it exists, and everything of the record on the host that the
/// kernel does not remove with the link. Only the link is observed, to verify its owner. While it exists, the addresses identify
/// the rest, and observing that would cost more than removing it. Without the link another pod may have the addresses: if they
/// have routes, their rules and proxies stay.
///
/// # Errors
/// [`Error::Observe`] when the kernel does not answer.
pub fn recorded(network: &PodNetwork, places: &mut Places) -> Result<Vec<(Place, Object)>, Error> {
    let link = match host_end(&network.ends, &mut places.host) {
        // Another link has the name, so our link is gone.
        Err(Error::Collision { .. }) => None,
        found => found?,
    };
    let stays = |(place, object): &(Place, Object)| {
        let link_itself = matches!(object, Object::Link(_));
        *place == Place::Host && !link_itself && object.carrier() != Some(&network.ends.host)
    };
    let mut network = network.clone();
    if link.is_none() {
        let owners = owners(places)?;
        network.addresses.retain(|pod| owners.iter().all(|owner| owner.address != pod.address));
    }
    let link = link.map(|end| (Place::Host, Object::Link(end.link)));
    Ok(link.into_iter().chain(desired(&network).into_iter().filter(stays)).collect())
}

struct HostEnd {
    index: u32,
    accept_ra: Option<i32>,
    link: LinkSpec,
}

/// A link's `accept_ra` as a setting. A link without IPv6 accepts no router advertisements.
pub(crate) fn accept_ra_of(link: &IfName, accept_ra: Option<i32>) -> SysctlSpec {
    SysctlSpec { value: accept_ra.unwrap_or_default().to_string(), ..SysctlSpec::heeds_no_router(link) }
}

fn host_end(ends: &LinkEnds, socket: &mut Socket) -> Result<Option<HostEnd>, Error> {
    let link = match socket.link(&ends.host) {
        Ok(link) => link,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(during(format_args!("link {}", ends.host))(error)),
    };
    // An ADD that was killed between creating the link and its alias leaves none, and another program may have written an alias.
    // The Ethernet address is a hash of the owner, too. Only our alias distinguishes two owners with one hash.
    let named = link.alias.as_deref().is_some_and(|alias| alias.starts_with(LINK_ALIAS_PREFIX));
    let nameless = !named && link.mac == Some(ends.host_mac);
    if link.alias.as_deref() != Some(ends.alias.as_str()) && !nameless {
        return Err(Error::Collision { name: link.name, found: link.alias, wanted: ends.alias.clone() });
    }
    let kind = LinkKind::Veth(VethPeer { name: ends.pod.clone(), mac: ends.pod_mac });
    Ok(Some(HostEnd { index: link.index, accept_ra: link.accept_ra, link: LinkSpec::seen(link, kind) }))
}

/// The objects of a link; none if the link is gone since its lookup. When a namespace ends, the kernel removes its links and their
/// other ends some time later.
pub(super) fn on_link<T>(listed: netlink::Result<Vec<T>>, what: impl fmt::Display) -> Result<Vec<T>, Error> {
    match listed {
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        listed => listed.map_err(during(what)),
    }
}

/// The pod end with our objects on it. Another link of that name counts as absent: creating our link then fails.
fn pod_end(
    ends: &LinkEnds,
    host_index: u32,
    held: &[IpAddr],
    places: &mut Places,
) -> Result<Vec<(Place, Object)>, Error> {
    let Some(pod) = &mut places.pod else { return Ok(Vec::new()) };
    let link = match pod.socket.link(&ends.pod) {
        Ok(link) => link,
        Err(error) if error.is_not_found() => return Ok(Vec::new()),
        Err(error) => return Err(during(format_args!("link {} in the pod", ends.pod))(error)),
    };
    if link.kind.as_deref() != Some("veth") || link.parent != Some(host_index) {
        return Ok(Vec::new());
    }
    let index = link.index;
    let mut found = vec![Object::Link(LinkSpec::seen(link, LinkKind::VethPeer))];
    let addresses = on_link(pod.socket.addresses(Some(index)), format_args!("addresses of {} in the pod", ends.pod))?;
    let ours = |address: &netlink::Address| held.contains(&address.address.ip()) && !address.tentative;
    found.extend(
        addresses
            .into_iter()
            .filter(ours)
            .map(|address| Object::Address(AddressSpec { link: ends.pod.clone(), address: address.address })),
    );
    let gateways: Vec<IpAddr> = held.iter().map(|address| gateway(Family::of(*address))).collect();
    found.extend(carried(&ends.pod, index, TableId::MAIN, &gateways, &mut pod.socket)?);
    let found = found.into_iter().map(|object| (Place::Pod, object));
    let switched_off = |link| switched_off(Place::Pod, link, places);
    Ok(found.chain([LOOPBACK, ends.pod.as_str()].into_iter().filter_map(switched_off)).collect())
}

/// Whether IPv6 is off on a link. A kernel without IPv6 has no such setting, and no IPv6 pods either.
pub(super) fn switched_off(place: Place, link: &str, places: &Places) -> Option<(Place, Object)> {
    places.setting(place, &disable_ipv6(link)).map(|found| (place, Object::Sysctl(found)))
}

/// The proxies and addresses of the host end that answer for the pod's gateways.
fn gateways_on(
    name: &IfName,
    index: u32,
    held: &[IpAddr],
    socket: &mut Socket,
) -> Result<impl Iterator<Item = Object>, Error> {
    let filter = NeighbourFilter { family: Some(Family::Ipv4), index: Some(index), proxy: true };
    let proxies = on_link(socket.neighbours(&filter), format_args!("proxy neighbours on {name}"))?;
    let addresses = on_link(socket.addresses(Some(index)), format_args!("addresses of {name}"))?;
    let proxy = |address| Object::Neighbour(NeighbourSpec { link: name.clone(), address, mac: None });
    let on_host_end = |address| Object::Address(AddressSpec { link: name.clone(), address });
    let ours = |proxy: &netlink::Neighbour| proxy.protocol == Some(PROTOCOL);
    let proxies: Vec<_> = proxies.into_iter().filter(ours).map(|it| proxy(it.address)).collect();
    // Addresses have no protocol number, and a pod without IPv6 needs none.
    let wanted = |address: &IpNetwork| *address == LINK_LOCAL_GATEWAY && held.iter().any(IpAddr::is_ipv6);
    let gateways: Vec<_> = addresses.into_iter().map(|it| it.address).filter(wanted).map(on_host_end).collect();
    Ok(proxies.into_iter().chain(gateways))
}

/// Our permanent neighbours and routes on a link, the routes in one table. Any neighbour for an address of `slots` counts as our own.
pub(super) fn carried(
    name: &IfName,
    index: u32,
    table: TableId,
    slots: &[IpAddr],
    socket: &mut Socket,
) -> Result<Vec<Object>, Error> {
    let mut found = Vec::new();
    for family in Family::ALL {
        let filter = NeighbourFilter { family: Some(family), index: Some(index), proxy: false };
        let neighbours = on_link(socket.neighbours(&filter), format_args!("{family} neighbours on {name}"))?;
        found.extend(
            neighbours
                .into_iter()
                .filter(|n| n.permanent && (n.protocol == Some(PROTOCOL) || slots.contains(&n.address)))
                .map(|n| Object::Neighbour(NeighbourSpec { link: name.clone(), address: n.address, mac: n.mac })),
        );
        let filter = RouteFilter { family, table: Some(table), protocol: Some(PROTOCOL), oif: Some(index) };
        let routes = on_link(socket.routes(&filter), format_args!("{family} routes on {name}"))?;
        found.extend(routes.iter().map(|route| Object::Route(RouteSpec::seen(route, name.clone()))));
    }
    Ok(found)
}

/// Permanent neighbours of other programs on the host end that have another Ethernet address than `mac` for the pod. They are
/// reported and not removed. [`observe`] finds our objects.
///
/// # Errors
/// [`Error::Observe`] when the kernel does not answer.
pub fn misleading(
    host_end: &IfName,
    held: &[IpAddr],
    mac: MacAddr,
    places: &mut Places,
) -> Result<Vec<NeighbourSpec>, Error> {
    let during = during(format!("neighbours on {host_end}"));
    let index = match places.host.index_of(host_end) {
        Ok(index) => index,
        Err(error) if error.is_not_found() => return Ok(Vec::new()),
        Err(error) => return Err(during(error)),
    };
    let filter = NeighbourFilter { index: Some(index), ..NeighbourFilter::default() };
    let neighbours = places.host.neighbours(&filter).map_err(&during)?;
    let misleads = |it: &netlink::Neighbour| {
        it.permanent && it.protocol != Some(PROTOCOL) && it.mac != Some(mac) && held.contains(&it.address)
    };
    let spec = |it: netlink::Neighbour| NeighbourSpec { link: host_end.clone(), address: it.address, mac: it.mac };
    Ok(neighbours.into_iter().filter(misleads).map(spec).collect())
}

/// Our proxy neighbours for these addresses, on any link.
fn proxies(held: &[IpAddr], socket: &mut Socket) -> Result<Vec<Object>, Error> {
    let during = during("proxy neighbours");
    let entries = socket.neighbours(&NeighbourFilter { proxy: true, ..NeighbourFilter::default() }).map_err(&during)?;
    let mut found = Vec::new();
    // Another program may have a proxy for the same address on another link.
    for entry in entries.iter().filter(|it| it.protocol == Some(PROTOCOL) && held.contains(&it.address)) {
        match socket.link_at(entry.index) {
            Ok(link) => {
                found.push(Object::Neighbour(NeighbourSpec { link: link.name, address: entry.address, mac: None }))
            }
            // A VNIC that was detached meanwhile took its proxies with it.
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(during(error)),
        }
    }
    Ok(found)
}

pub(super) fn rules(held: &[IpAddr], socket: &mut Socket) -> Result<Vec<Object>, Error> {
    let about = |net: &Option<IpNetwork>| net.is_some_and(|net| held.contains(&net.ip()));
    let mut found = Vec::new();
    for family in Family::ALL.into_iter().filter(|family| held.iter().any(|a| Family::of(*a) == *family)) {
        let rules = socket.rules(family).map_err(during(format_args!("{family} policy rules")))?;
        let ours =
            |rule: &Rule| rule.protocol == PROTOCOL && rule.priority == RulePriorities::FROM_POD && about(&rule.from);
        found.extend(rules.iter().filter(|rule| ours(rule)).map(|rule| Object::Rule(rule_seen(rule))));
    }
    Ok(found)
}

/// The source address of a pod's rule, if it is our rule without further conditions.
pub(crate) fn rule_of_a_pod(rule: &Rule) -> Option<(IpNetwork, Rule)> {
    let ours = rule.protocol == PROTOCOL && rule.priority == RulePriorities::FROM_POD;
    let narrower =
        rule.to.is_some() || rule.fwmark.is_some() || rule.iif.is_some() || rule.suppress.is_some() || rule.unmodelled;
    Some((rule.from.filter(|_| ours && !narrower)?, rule.clone()))
}
