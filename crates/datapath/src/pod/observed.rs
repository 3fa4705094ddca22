//! What there is of an attachment's network, as far as it is ours.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netlink::{NeighbourFilter, RouteFilter, Socket};
use vcn::{Family, IfName, LINK_ALIAS_PREFIX, MacAddr, PODS_TABLE, PROTOCOL, RulePriorities, TableId};

use super::{LINK_LOCAL_GATEWAY, LOOPBACK, LinkEnds, PodNetwork, desired, disable_ipv6, gateway, owners};
use crate::{
    AddressSpec, Error, LinkKind, LinkSpec, NeighbourSpec, Object, Place, Places, RouteSpec, RuleSpec, SysctlSpec,
    VethPeer,
};

/// Looks at everything that belongs to an attachment: its link ends and what they carry, and the rules and the proxy
/// neighbours of its addresses. Those are `held`, by the allocation, and any that a route leads to by
/// its host end: without a record, or with one that is behind, nothing is overlooked. An address that a route leads to by
/// another pod's link is that pod's, whatever a record says, and so are its rules and proxies.
///
/// What others put on the links is left out: addresses that no pod of ours has, and routes and neighbours that do not carry our
/// number.
///
/// # Errors
/// [`Error::Observe`] when the kernel does not answer; [`Error::Collision`] when the host name is somebody else's link.
pub fn observe(ends: &LinkEnds, mut held: Vec<IpAddr>, places: &mut Places) -> Result<Vec<(Place, Object)>, Error> {
    let mut found = Vec::new();
    let owners = owners(places)?;
    held.retain(|address| !owners.iter().any(|owner| owner.address == *address && owner.link != ends.host));
    if let Some(HostEnd { index, accept_ra, link }) = host_end(ends, &mut places.host)? {
        found.push((Place::Host, Object::Link(link)));
        found.push((Place::Host, Object::Sysctl(heeds_routers(&ends.host, accept_ra))));
        found.extend(switched_off(Place::Host, ends.host.as_str(), places));
        let on_host = carried(&ends.host, index, PODS_TABLE, &[], &mut places.host)?;
        for object in &on_host {
            if let Object::Route(route) = object
                && !held.contains(&route.destination.ip())
            {
                held.push(route.destination.ip());
            }
        }
        // The pod end stands before the host's routes, so that the list is in the order of making.
        found.extend(pod_end(ends, index, &held, places)?);
        found.extend(answering(&ends.host, index, &held, &mut places.host)?.map(|object| (Place::Host, object)));
        found.extend(on_host.into_iter().map(|object| (Place::Host, object)));
    }
    found.extend(proxies(&held, &mut places.host)?.into_iter().map(|object| (Place::Host, object)));
    found.extend(rules(&held, &mut places.host)?.into_iter().map(|object| (Place::Host, object)));
    Ok(found)
}

/// What there is to take down of a network that is on record: everything on the host that the record says and that does
/// not go with the link, and the link itself if it is there. Only the link is looked at, to be sure whose it is: as long as
/// it is there, the rest is told from others' by its address, and to ask for it would cost more than to remove it. Without
/// it the addresses may be another pod's by now, by the routes that lead to them; that one's rules and proxies stay.
///
/// # Errors
/// [`Error::Observe`] when the kernel does not answer.
pub fn recorded(network: &PodNetwork, places: &mut Places) -> Result<Vec<(Place, Object)>, Error> {
    let link = match host_end(&network.ends, &mut places.host) {
        // Somebody else has the name by now, so ours is gone.
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

/// What the kernel says of a link's `accept_ra`, as the setting. A link without IPv6 heeds nobody.
pub(crate) fn heeds_routers(link: &IfName, accept_ra: Option<i32>) -> SysctlSpec {
    SysctlSpec { value: accept_ra.unwrap_or_default().to_string(), ..SysctlSpec::heeds_no_router(link) }
}

fn host_end(ends: &LinkEnds, socket: &mut Socket) -> Result<Option<HostEnd>, Error> {
    let link = match socket.link(&ends.host) {
        Ok(link) => link,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(source) => return Err(Error::Observe { what: format!("link {}", ends.host), source }),
    };
    // An ADD killed between making the link and naming its owner leaves no alias, and somebody may have written another; the
    // Ethernet address is a hash of the owner too. Only an alias of ours tells two owners of one hash apart.
    let named = link.alias.as_deref().is_some_and(|alias| alias.starts_with(LINK_ALIAS_PREFIX));
    let nameless = !named && link.mac == Some(ends.host_mac);
    if link.alias.as_deref() != Some(ends.alias.as_str()) && !nameless {
        return Err(Error::Collision { name: link.name, found: link.alias, wanted: ends.alias.clone() });
    }
    let kind = LinkKind::Veth(VethPeer { name: ends.pod.clone(), mac: ends.pod_mac });
    Ok(Some(HostEnd { index: link.index, accept_ra: link.accept_ra, link: seen(link, kind) }))
}

/// What is on a link: nothing where that has gone since it was looked up. A namespace that ends takes its links along, and the other
/// ends with them, when the kernel has time.
pub(super) fn on_link<T>(listed: netlink::Result<Vec<T>>, what: impl FnOnce() -> String) -> Result<Vec<T>, Error> {
    match listed {
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        listed => listed.map_err(|source| Error::Observe { what: what(), source }),
    }
}

/// The pod end and what it carries of ours. A link of that name that is not the other end of ours is somebody else's, and as
/// good as absent: making ours will then fail for it.
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
        Err(source) => return Err(Error::Observe { what: format!("link {} in the pod", ends.pod), source }),
    };
    if link.kind.as_deref() != Some("veth") || link.parent != Some(host_index) {
        return Ok(Vec::new());
    }
    let index = link.index;
    let mut found = vec![Object::Link(seen(link, LinkKind::VethPeer))];
    let addresses = on_link(pod.socket.addresses(Some(index)), || format!("addresses of {} in the pod", ends.pod))?;
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
    let key = disable_ipv6(link);
    let path: Vec<&str> = key.iter().map(String::as_str).collect();
    let value = places.sysctl(place, |sysctls| sysctls.read(&path)).ok()?.trim().to_owned();
    Some((place, Object::Sysctl(SysctlSpec { key, value })))
}

/// What answers on the host end for the pod's gateways.
fn answering(
    name: &IfName,
    index: u32,
    held: &[IpAddr],
    socket: &mut Socket,
) -> Result<impl Iterator<Item = Object>, Error> {
    let filter = NeighbourFilter { family: Some(Family::Ipv4), index: Some(index), proxy: true };
    let proxies = on_link(socket.neighbours(&filter), || format!("proxy neighbours on {name}"))?;
    let addresses = on_link(socket.addresses(Some(index)), || format!("addresses of {name}"))?;
    let proxy = |address| Object::Neighbour(NeighbourSpec { link: name.clone(), address, mac: None });
    let on_host_end = |address| Object::Address(AddressSpec { link: name.clone(), address });
    let ours = |proxy: &netlink::Neighbour| proxy.protocol == Some(PROTOCOL);
    let proxies: Vec<_> = proxies.into_iter().filter(ours).map(|it| proxy(it.address)).collect();
    // Addresses bear no number, and a pod without IPv6 needs none.
    let wanted = |address: &IpNetwork| *address == LINK_LOCAL_GATEWAY && held.iter().any(IpAddr::is_ipv6);
    let gateways: Vec<_> = addresses.into_iter().map(|it| it.address).filter(wanted).map(on_host_end).collect();
    Ok(proxies.into_iter().chain(gateways))
}

/// Permanent neighbours and routes of ours on a link, the routes in one table. An address of `slots` is ours to have a neighbour
/// of, whoever wrote what is there.
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
        let neighbours = on_link(socket.neighbours(&filter), || format!("{family} neighbours on {name}"))?;
        found.extend(
            neighbours
                .into_iter()
                .filter(|n| n.permanent && (n.protocol == Some(PROTOCOL) || slots.contains(&n.address)))
                .map(|n| Object::Neighbour(NeighbourSpec { link: name.clone(), address: n.address, mac: n.mac })),
        );
        let filter = RouteFilter { family, table: Some(table), protocol: Some(PROTOCOL), oif: Some(index) };
        let routes = on_link(socket.routes(&filter), || format!("{family} routes on {name}"))?;
        found.extend(routes.into_iter().map(|route| {
            let link = name.clone();
            Object::Route(RouteSpec { destination: route.destination, via: route.gateway, link, table: route.table })
        }));
    }
    Ok(found)
}

/// Permanent neighbours on the host end that lead what is for the pod to another Ethernet address than `mac`. Those of ours, which
/// [`observe`] finds, are left out: these are somebody's, to be told and not to be taken away.
///
/// # Errors
/// [`Error::Observe`] when the kernel does not answer.
pub fn misleading(
    host_end: &IfName,
    held: &[IpAddr],
    mac: MacAddr,
    places: &mut Places,
) -> Result<Vec<NeighbourSpec>, Error> {
    let during = |source| Error::Observe { what: format!("neighbours on {host_end}"), source };
    let index = match places.host.index_of(host_end) {
        Ok(index) => index,
        Err(error) if error.is_not_found() => return Ok(Vec::new()),
        Err(source) => return Err(during(source)),
    };
    let filter = NeighbourFilter { index: Some(index), ..NeighbourFilter::default() };
    let neighbours = places.host.neighbours(&filter).map_err(during)?;
    let misleads = |it: &netlink::Neighbour| {
        it.permanent && it.protocol != Some(PROTOCOL) && it.mac != Some(mac) && held.contains(&it.address)
    };
    let spec = |it: netlink::Neighbour| NeighbourSpec { link: host_end.clone(), address: it.address, mac: it.mac };
    Ok(neighbours.into_iter().filter(misleads).map(spec).collect())
}

/// Proxy neighbours of ours for these addresses, on whatever link.
fn proxies(held: &[IpAddr], socket: &mut Socket) -> Result<Vec<Object>, Error> {
    let during = |source| Error::Observe { what: "proxy neighbours".into(), source };
    let entries = socket.neighbours(&NeighbourFilter { proxy: true, ..NeighbourFilter::default() }).map_err(during)?;
    let mut found = Vec::new();
    // Somebody else may answer for the same address on another link.
    for entry in entries.iter().filter(|it| it.protocol == Some(PROTOCOL) && held.contains(&it.address)) {
        match socket.link_at(entry.index) {
            Ok(link) => {
                found.push(Object::Neighbour(NeighbourSpec { link: link.name, address: entry.address, mac: None }))
            }
            // A VNIC that was detached meanwhile took its proxies with it.
            Err(error) if error.is_not_found() => {}
            Err(source) => return Err(during(source)),
        }
    }
    Ok(found)
}

pub(super) fn rules(held: &[IpAddr], socket: &mut Socket) -> Result<Vec<Object>, Error> {
    let about = |net: &Option<IpNetwork>| net.is_some_and(|net| held.contains(&net.ip()));
    let mut found = Vec::new();
    for family in Family::ALL.into_iter().filter(|family| held.iter().any(|a| Family::of(*a) == *family)) {
        let rules =
            socket.rules(family).map_err(|source| Error::Observe { what: format!("{family} policy rules"), source })?;
        let ours = |rule: &netlink::Rule| {
            rule.protocol == PROTOCOL && rule.priority == RulePriorities::FROM_POD && about(&rule.from)
        };
        found.extend(rules.iter().filter(|rule| ours(rule)).map(|rule| Object::Rule(rule.into())));
    }
    Ok(found)
}

/// The rule of a pod's address, if it is one: of ours, and about all that the address sends.
pub(crate) fn rule_of_a_pod(rule: &netlink::Rule) -> Option<(IpNetwork, RuleSpec)> {
    let ours = rule.protocol == PROTOCOL && rule.priority == RulePriorities::FROM_POD;
    let narrower =
        rule.to.is_some() || rule.fwmark.is_some() || rule.iif.is_some() || rule.suppress.is_some() || rule.unmodelled;
    Some((rule.from.filter(|_| ours && !narrower)?, rule.into()))
}

pub(super) fn seen(link: netlink::Link, kind: LinkKind) -> LinkSpec {
    let netlink::Link { name, mac, mtu, up, alias, .. } = link;
    LinkSpec { name, kind, mac, mtu: Some(mtu), up, alias }
}
