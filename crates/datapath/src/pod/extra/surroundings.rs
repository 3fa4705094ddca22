//! What a pod has besides an extra interface: its own interfaces, which must answer as before, and whose names and routes are
//! taken.

use std::collections::HashMap;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netlink::{Address, Route, RouteFilter, RouteKind, Rule};
use vcn::{Family, IfName, POD_OWN_TABLE, PROTOCOL, RulePriorities, TableId};

use super::ExtraNetwork;
use crate::error::during;
use crate::object::is_link_local;
use crate::{Change, Error, Object, Place, Places, RouteSpec, Step};

/// The names of the pod's links.
///
/// # Errors
/// [`Error::Observe`] when the kernel does not answer.
pub fn used_names(places: &mut Places) -> Result<Vec<IfName>, Error> {
    Ok(Pod::look(places)?.names.into_values().collect())
}

/// Destinations of an extra interface's routes that are another interface's in the main table: by a route to the same, or
/// because an address of that interface is in it, whose neighbours would then be reached from the wrong one.
///
/// # Errors
/// [`Error::Observe`] when the kernel does not answer.
pub fn taken_routes(network: &ExtraNetwork, places: &mut Places) -> Result<Vec<IpNetwork>, Error> {
    let pod = Pod::look(places)?;
    let other = |index: u32| pod.names.get(&index).is_some_and(|name| name != network.name());
    let mut wanted: Vec<IpNetwork> = network.subnets.iter().map(|(_, subnet)| *subnet).collect();
    wanted.extend(network.routes.iter().map(|route| route.destination));
    wanted.retain(|destination| {
        let routed = pod.main.iter().any(|route| route.destination == *destination && other(route.oif));
        let holds = |it: &&Address| pod.is_own(it.address.ip()) && other(it.index);
        routed || pod.addresses.iter().filter(holds).any(|it| destination.contains(it.address.ip()))
    });
    Ok(wanted)
}

/// What makes the pod's own addresses answer by their own interfaces, whatever an extra interface adds to the main table:
/// a rule for each, to a copy of the routes that their interfaces have there. Nothing of it is taken away again.
///
/// # Errors
/// [`Error::Observe`] when the kernel does not answer.
pub fn own_ways(network: &ExtraNetwork, places: &mut Places) -> Result<Vec<Step>, Error> {
    let pod = Pod::look(places)?;
    let own: Vec<&Address> = pod
        .addresses
        .iter()
        .filter(|it| pod.is_own(it.address.ip()) && pod.names.get(&it.index).is_some_and(|name| name != network.name()))
        .collect();
    let copied = |route: &&Route| {
        route.kind == RouteKind::Unicast
            && !route.unmodelled
            && !is_link_local(route.destination)
            && own.iter().any(|address| address.index == route.oif)
    };
    let routes = pod.main.iter().filter(copied).filter_map(|route| {
        let link = pod.names.get(&route.oif)?.clone();
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

/// What the kernel says of the pod.
#[derive(Default)]
struct Pod {
    names: HashMap<u32, IfName>,
    addresses: Vec<Address>,
    main: Vec<Route>,
    /// Addresses of extra interfaces.
    extra: Vec<IpAddr>,
}

impl Pod {
    fn look(places: &mut Places) -> Result<Self, Error> {
        let during = during("the pod's interfaces");
        let Some(pod) = &mut places.pod else { return Ok(Self::default()) };
        let links = pod.socket.links().map_err(&during)?;
        let names = links.into_iter().map(|link| (link.index, link.name)).collect();
        let (mut main, mut extra) = (Vec::new(), Vec::new());
        for family in Family::ALL {
            let filter = RouteFilter { table: Some(TableId::MAIN), ..RouteFilter::all(family) };
            main.extend(pod.socket.routes(&filter).map_err(&during)?);
            let rules = pod.socket.rules(family).map_err(&during)?;
            let of_extra = rules.iter().filter(|rule| rule.priority == RulePriorities::FROM_POD);
            extra.extend(of_extra.filter_map(|rule| Some(rule.from?.ip())));
        }
        let addresses = pod.socket.addresses(None).map_err(&during)?;
        Ok(Self { names, addresses, main, extra })
    }

    /// Whether an address is one of the pod's own.
    fn is_own(&self, address: IpAddr) -> bool {
        !address.is_loopback() && !is_link_local(IpNetwork::from(address)) && !self.extra.contains(&address)
    }
}
