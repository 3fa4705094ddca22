//! What a pod has besides an extra interface: its own interfaces, which must answer as before, and whose names and routes are
//! taken.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netlink::{Address, Route, RouteKind, Rule};
use vcn::{Family, IfName, POD_OWN_TABLE, PROTOCOL, RulePriorities};

use super::ExtraNetwork;
use crate::error::during;
use crate::object::is_link_local;
use crate::{Change, Error, Object, Place, Places, RouteSpec, Snapshot, Step};

/// The names of the pod's links.
///
/// # Errors
/// [`Error::Observe`] when the kernel does not answer.
pub fn used_names(places: &mut Places) -> Result<Vec<IfName>, Error> {
    let Some(pod) = &mut places.pod else { return Ok(Vec::new()) };
    let links = pod.socket.links().map_err(during("the pod's network"))?;
    Ok(links.into_iter().map(|link| link.name).collect())
}

/// Destinations of an extra interface's routes that belong to another interface in the main table. Either that table has a route
/// to the same destination, or an address of the other interface is in it. Then the neighbors of that address would be reached
/// through the wrong interface.
///
/// # Errors
/// [`Error::Observe`] when the kernel does not answer.
pub fn taken_routes(network: &ExtraNetwork, places: &mut Places) -> Result<Vec<IpNetwork>, Error> {
    let pod = Snapshot::of_pods_main_table(places)?;
    let other = |index: u32| pod.name(index).is_some_and(|name| name != network.name());
    let mut taken: Vec<IpNetwork> = network.subnets.iter().map(|(_, subnet)| *subnet).collect();
    taken.extend(network.routes.iter().map(|route| route.destination));
    taken.retain(|destination| {
        let routed = pod.routes.iter().any(|route| route.destination == *destination && other(route.oif));
        let holds = |it: &&Address| is_own(it.address.ip(), &pod) && other(it.index);
        routed || pod.addresses.iter().filter(holds).any(|it| destination.contains(it.address.ip()))
    });
    Ok(taken)
}

/// What makes the pod's own addresses answer through their own interfaces, whatever an extra interface adds to the main table.
/// Each address gets a rule, to a copy of the routes that its interface has there. Nothing of it is taken away again.
///
/// # Errors
/// [`Error::Observe`] when the kernel does not answer.
pub fn own_ways(network: &ExtraNetwork, places: &mut Places) -> Result<Vec<Step>, Error> {
    let pod = Snapshot::of_pods_main_table(places)?;
    let own: Vec<&Address> = pod
        .addresses
        .iter()
        .filter(|it| is_own(it.address.ip(), &pod) && pod.name(it.index).is_some_and(|name| name != network.name()))
        .collect();
    let copied = |route: &&Route| {
        route.kind == RouteKind::Unicast
            && !route.unmodeled
            && !is_link_local(route.destination)
            && own.iter().any(|address| address.index == route.oif)
    };
    let routes = pod.routes.iter().filter(copied).filter_map(|route| {
        let link = pod.name(route.oif)?.clone();
        let (destination, via, table) = (route.destination, route.gateway, POD_OWN_TABLE);
        Some(Object::Route(RouteSpec { destination, via, link, table }))
    });
    let rules = own.iter().map(|address| {
        let ip = address.address.ip();
        let rule = Rule::new(Family::of(ip), RulePriorities::IN_POD_OWN, POD_OWN_TABLE, PROTOCOL);
        Object::Rule(Rule { from: Some(IpNetwork::from(ip)), ..rule })
    });
    let step =
        |object: Object| Step { place: Place::Pod, change: Change::Replace { from: object.clone(), to: object } };
    Ok(routes.chain(rules.collect::<Vec<_>>()).map(step).collect())
}

/// Whether an address is one of the pod's own, not an extra interface's.
fn is_own(address: IpAddr, pod: &Snapshot) -> bool {
    let is_its = |rule: &Rule| rule.from.is_some_and(|from| from.ip() == address);
    let of_extra = pod.rules.iter().any(|rule| rule.priority == RulePriorities::FROM_POD && is_its(rule));
    !address.is_loopback() && !is_link_local(IpNetwork::from(address)) && !of_extra
}
