//! The host's side of all running pods, for the agent's repairs. The kernel is queried once for everything, and each pod's share
//! is compared alone, so hundreds of pods cost milliseconds.
//!
//! ```text
//!   links, routes to pods, rules from pods, proxies ─▶ Snapshot ─┬─ repairs(pod) ─▶ plan(desired, its share) ─▶ [Step]
//!                                                   (one list)   └─ repairs(pod) ─▶ …
//! ```
//!
//! Objects of other pods are not touched.

use netlink::{Link, Rule};
use vcn::{HOST_LINK_PREFIX, IfName, MacAddr, Mtu};

use crate::pod::{self, LINK_LOCAL_GATEWAY, PodNetwork};
use crate::{LinkKind, LinkSpec, NeighbourSpec, Object, Place, Places, RouteSpec, Snapshot, Step, SysctlSpec, plan};

/// The desired host side of a pod, from its record. A record of an older ADD has no `mtu`; the link then keeps its own.
pub fn desired(network: &PodNetwork, mtu: Option<Mtu>) -> Vec<Object> {
    let host = pod::desired(network).into_iter().filter(|(place, _)| *place == Place::Host);
    host.map(|(_, object)| match object {
        Object::Link(link) => Object::Link(LinkSpec { kind: LinkKind::Device, mtu, ..link }),
        other => other,
    })
    .collect()
}

/// The Ethernet address that ADD gave to the host end of this name; `None` for other names.
pub fn host_mac(name: &IfName) -> Option<MacAddr> {
    let digits = name.as_str().strip_prefix(HOST_LINK_PREFIX).filter(|_| name.is_of_pod())?;
    u64::from_str_radix(digits, 16).ok().map(MacAddr::local)
}

/// What would make the host's side of a pod whole; `None` when the pod's link is not there, and so nothing of it can
/// be repaired. On success of the steps the host has all that [`desired`] says, but for proxies on VNIC links that are
/// gone, and no other rule from the pod's addresses.
pub fn repairs(host: &Snapshot, network: &PodNetwork, mtu: Option<Mtu>, places: &Places) -> Option<Vec<Step>> {
    let ends = &network.ends;
    let link = host.link(&ends.host)?;
    // Without alias: ADD set it, so another program removed it; the address still identifies the pod.
    let unnamed = link.alias.is_none() && link.mac == Some(ends.host_mac);
    if link.alias.as_ref() != Some(&ends.alias) && !unnamed {
        return None;
    }
    let ignoring_advertisements = Object::Sysctl(SysctlSpec::ignoring_router_advertisements(&ends.host));
    let has_gateway = host.addresses_on(link).any(|held| held.address == LINK_LOCAL_GATEWAY);
    let is_checked = |object: &Object| match object {
        _ if *object == ignoring_advertisements => true,
        // Only where it shows: a file per pod is read for it.
        Object::Sysctl(_) => !has_gateway,
        Object::Neighbour(proxy) => host.link(&proxy.link).is_some(),
        _ => true,
    };
    let desired_objects: Vec<Object> = desired(network, mtu).into_iter().filter(is_checked).collect();
    let there_is = |object: &Object| match object {
        Object::Link(_) => vec![Object::Link(LinkSpec::seen(link.clone(), LinkKind::Device))],
        Object::Address(_) if has_gateway => vec![object.clone()],
        Object::Route(RouteSpec { destination, .. }) => {
            let routes = host.routes.iter().rev().filter(|route| route.destination == *destination);
            let last = routes.filter_map(|route| Some(RouteSpec::seen(route, host.name(route.oif)?.clone()))).next();
            last.into_iter().map(Object::Route).collect()
        }
        Object::Rule(Rule { from, .. }) => {
            let ours = |rule: &&Rule| rule.from == *from && pod::source_of_a_pod(rule).is_some();
            host.rules.iter().filter(ours).cloned().map(Object::Rule).collect()
        }
        Object::Neighbour(NeighbourSpec { link, address, .. }) => {
            let proxied = |at: &Link| host.neighbours.iter().any(|it| it.index == at.index && it.address == *address);
            let is_there = host.link(link).is_some_and(proxied);
            if is_there { vec![object.clone()] } else { Vec::new() }
        }
        Object::Sysctl(_) if *object == ignoring_advertisements => vec![Object::Sysctl(pod::accept_ra_of(link))],
        Object::Sysctl(SysctlSpec { key, .. }) => {
            places.setting(Place::Host, key).map(Object::Sysctl).into_iter().collect()
        }
        Object::Address(_) | Object::NftTable(_) => Vec::new(),
    };
    let observed: Vec<Object> = desired_objects.iter().flat_map(there_is).collect();
    let placed = |objects: Vec<Object>| objects.into_iter().map(|object| (Place::Host, object)).collect::<Vec<_>>();
    Some(plan(&placed(desired_objects), &placed(observed)))
}
