//! Observes an attachment's network: our objects only.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netlink::{Link, NeighbourFilter, Rule};
use vcn::{Family, IfName, LINK_ALIAS_PREFIX, MacAddr, PODS_TABLE, PROTOCOL, RulePriorities, TableId};

use super::{LINK_LOCAL_GATEWAY, LOOPBACK, LinkEnds, PodNetwork, desired, disable_ipv6, gateway, owners};
use crate::error::during;
use crate::object::rule_seen;
use crate::{
    AddressSpec, Error, LinkKind, LinkSpec, NeighbourSpec, Object, Place, Places, Snapshot, SysctlSpec, VethPeer,
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
    let (host, pod) = (Snapshot::of_host(places)?, Snapshot::of_pod(places)?);
    let mut found = Vec::new();
    for owner in owners(&host) {
        match owner.link == ends.host {
            true if !held.contains(&owner.address) => held.push(owner.address),
            true => {}
            false => held.retain(|address| *address != owner.address),
        }
    }
    let on_host = |object| (Place::Host, object);
    if let Some(link) = host.link(&ends.host) {
        found.push(on_host(Object::Link(host_end(ends, link)?)));
        found.push(on_host(Object::Sysctl(accept_ra_of(link))));
        found.extend(switched_off(Place::Host, ends.host.as_str(), places));
        // The pod end comes before the host's routes, in the order of creation.
        found.extend(pod_end(ends, link.index, &held, &pod, places));
        // The proxies and addresses that answer for the pod's gateways. Addresses have no protocol number, and a pod without
        // IPv6 needs none.
        let proxies = host.neighbours.iter().filter(|it| it.index == link.index && it.address.is_ipv4());
        found.extend(proxies.map(|it| on_host(proxy(&link.name, it.address))));
        let answers = |it: &&netlink::Address| it.address == LINK_LOCAL_GATEWAY && held.iter().any(IpAddr::is_ipv6);
        found.extend(host.addresses_on(link).filter(answers).map(|it| on_host(address_on(link, it))));
        found.extend(host.routes_on(link, PODS_TABLE).map(on_host));
    }
    // Another program may have a proxy for the same address on another link.
    let proxies = host.neighbours.iter().filter(|it| held.contains(&it.address));
    found.extend(proxies.filter_map(|it| Some(on_host(proxy(host.name(it.index)?, it.address)))));
    found.extend(rules(&held, &host).map(on_host));
    Ok(found)
}

/// The objects to take down for a recorded network: the link if it exists, and all of the host's part that the kernel does not
/// remove with it. Only the link is observed, to verify its owner. While it exists, the addresses identify the rest, and
/// observing that would cost more than removing it. Without the link another pod may have the addresses: if they have routes,
/// their rules and proxies stay.
///
/// # Errors
/// [`Error::Observe`] when the kernel does not answer.
pub fn recorded(network: &PodNetwork, places: &mut Places) -> Result<Vec<(Place, Object)>, Error> {
    let name = &network.ends.host;
    let link = match places.host.link(name) {
        // Where another link has the name, our link is gone.
        Ok(link) => host_end(&network.ends, &link).ok(),
        Err(error) if error.is_not_found() => None,
        Err(error) => return Err(during(format_args!("link {name}"))(error)),
    };
    let stays = |(place, object): &(Place, Object)| {
        let link_itself = matches!(object, Object::Link(_));
        *place == Place::Host && !link_itself && object.carrier() != Some(&network.ends.host)
    };
    let mut network = network.clone();
    if link.is_none() {
        let owners = owners(&Snapshot::of_host(places)?);
        network.addresses.retain(|pod| owners.iter().all(|owner| owner.address != pod.address));
    }
    let link = link.map(|link| (Place::Host, Object::Link(link)));
    Ok(link.into_iter().chain(desired(&network).into_iter().filter(stays)).collect())
}

/// A link's `accept_ra` as a setting. A link without IPv6 accepts no router advertisements.
pub(crate) fn accept_ra_of(link: &Link) -> SysctlSpec {
    let value = link.accept_ra.unwrap_or_default().to_string();
    SysctlSpec { value, ..SysctlSpec::ignoring_router_advertisements(&link.name) }
}

/// The link of the host end's name, if it is that.
fn host_end(ends: &LinkEnds, link: &Link) -> Result<LinkSpec, Error> {
    // An ADD that was killed between creating the link and its alias leaves none, and another program may have written an alias.
    // The Ethernet address is a hash of the owner, too. Only our alias distinguishes two owners with one hash.
    let named = link.alias.as_deref().is_some_and(|alias| alias.starts_with(LINK_ALIAS_PREFIX));
    let nameless = !named && link.mac == Some(ends.host_mac);
    if link.alias.as_deref() != Some(ends.alias.as_str()) && !nameless {
        let (name, found) = (link.name.clone(), link.alias.clone());
        return Err(Error::Collision { name, found, expected: ends.alias.clone() });
    }
    let kind = LinkKind::Veth(VethPeer { name: ends.pod.clone(), mac: ends.pod_mac });
    Ok(LinkSpec::seen(link.clone(), kind))
}

/// The pod end with our objects on it. Another link of that name counts as absent: creating our link then fails.
fn pod_end(ends: &LinkEnds, host_index: u32, held: &[IpAddr], pod: &Snapshot, places: &Places) -> Vec<(Place, Object)> {
    let is_end = |link: &&Link| link.kind.as_deref() == Some("veth") && link.parent == Some(host_index);
    let Some(link) = pod.link(&ends.pod).filter(is_end) else { return Vec::new() };
    let mut found = vec![Object::Link(LinkSpec::seen(link.clone(), LinkKind::VethPeer))];
    found.extend(usable(held, link, pod));
    let gateways: Vec<IpAddr> = held.iter().map(|address| gateway(Family::of(*address))).collect();
    found.extend(permanent(&gateways, link, pod));
    found.extend(pod.routes_on(link, TableId::MAIN));
    let switched_off = |link| switched_off(Place::Pod, link, places);
    let found = found.into_iter().map(|object| (Place::Pod, object));
    found.chain([LOOPBACK, ends.pod.as_str()].into_iter().filter_map(switched_off)).collect()
}

/// The addresses of a link in the pod that it holds and can use.
pub(super) fn usable(held: &[IpAddr], link: &Link, pod: &Snapshot) -> impl Iterator<Item = Object> {
    let ours = |it: &&netlink::Address| held.contains(&it.address.ip()) && !it.tentative;
    pod.addresses_on(link).filter(ours).map(|it| address_on(link, it))
}

/// Our permanent neighbours on a link in the pod. Any for an address of `slots` counts as our own.
pub(super) fn permanent(slots: &[IpAddr], link: &Link, pod: &Snapshot) -> impl Iterator<Item = Object> {
    let on_link = pod.neighbours.iter().filter(|it| it.index == link.index && it.permanent);
    let ours = on_link.filter(|it| it.protocol == Some(PROTOCOL) || slots.contains(&it.address));
    ours.map(|it| Object::Neighbour(NeighbourSpec { link: link.name.clone(), address: it.address, mac: it.mac }))
}

fn address_on(link: &Link, held: &netlink::Address) -> Object {
    Object::Address(AddressSpec { link: link.name.clone(), address: held.address })
}

fn proxy(link: &IfName, address: IpAddr) -> Object {
    Object::Neighbour(NeighbourSpec { link: link.clone(), address, mac: None })
}

/// Whether IPv6 is off on a link. A kernel without IPv6 has no such setting, and no IPv6 pods either.
pub(super) fn switched_off(place: Place, link: &str, places: &Places) -> Option<(Place, Object)> {
    places.setting(place, &disable_ipv6(link)).map(|found| (place, Object::Sysctl(found)))
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

/// Our rules of addresses that are held.
pub(super) fn rules(held: &[IpAddr], seen: &Snapshot) -> impl Iterator<Item = Object> {
    let of_pods = |rule: &&Rule| rule.protocol == PROTOCOL && rule.priority == RulePriorities::FROM_POD;
    let about = |rule: &&Rule| rule.from.is_some_and(|net| held.contains(&net.ip()));
    seen.rules.iter().filter(of_pods).filter(about).map(|rule| Object::Rule(rule_seen(rule)))
}

/// The source address of a pod's rule, if it is our rule without further conditions.
pub(crate) fn source_of_a_pod(rule: &Rule) -> Option<IpNetwork> {
    let ours = rule.protocol == PROTOCOL && rule.priority == RulePriorities::FROM_POD;
    let narrower =
        rule.to.is_some() || rule.fwmark.is_some() || rule.iif.is_some() || rule.suppress.is_some() || rule.unmodeled;
    rule.from.filter(|_| ours && !narrower)
}
