//! Our kernel objects: rules and routes with our protocol number, links with our alias, the VNICs' addresses, proxy neighbours
//! of pods, the nft tables.

use std::collections::HashSet;
use std::net::IpAddr;
use std::path::Path;

use datapath::{Object, Place, Places, host};
use netlink::{NeighbourFilter, RouteFilter, Socket};
use vcn::{Family, HOST_LINK_PREFIX, LINK_ALIAS_PREFIX, PODS_TABLE, PROTOCOL, RulePriorities};

use super::OtherNetworks;
use crate::error::Error;
use crate::uninstall::Removal;

/// Removes them.
pub(super) fn remove(sysctl_root: &Path, others: &OtherNetworks, removal: &mut Removal) {
    if let Err(error) = pods(removal) {
        removal.failures.push(error);
    }
    if let Err(error) = hosts(sysctl_root, others, removal) {
        removal.failures.push(error);
    }
}

/// Pods' rules, proxy neighbours, routes and links.
fn pods(removal: &mut Removal) -> Result<(), Error> {
    let listing = |what| move |source| Error::Kernel { what, source };
    let mut socket = Socket::open().map_err(listing("links"))?;
    let mut addresses: HashSet<IpAddr> = HashSet::new();
    let (mut routes, mut rules) = (Vec::new(), Vec::new());
    for family in Family::ALL {
        let filter = RouteFilter { family, table: Some(PODS_TABLE), protocol: Some(PROTOCOL), oif: None };
        routes.extend(socket.routes(&filter).map_err(listing("routes to pods"))?);
        rules.extend(socket.rules(family).map_err(listing("policy rules"))?);
    }
    rules.retain(|rule| rule.protocol == PROTOCOL && rule.priority == RulePriorities::FROM_POD && !rule.unmodelled);
    addresses.extend(routes.iter().map(|route| route.destination.ip()));
    addresses.extend(rules.iter().filter_map(|rule| rule.from.map(|from| from.ip())));
    let proxies = socket.neighbours(&NeighbourFilter { proxy: true, ..NeighbourFilter::default() });
    let mut proxies = proxies.map_err(listing("proxy neighbours"))?;
    proxies.retain(|proxy| addresses.contains(&proxy.address));
    let mut links = socket.links().map_err(listing("links"))?;
    links.retain(|link| {
        link.name.as_str().starts_with(HOST_LINK_PREFIX)
            && link.alias.as_ref().is_some_and(|alias| alias.starts_with(LINK_ALIAS_PREFIX))
    });
    for rule in rules {
        let what = match rule.from {
            Some(from) => format!("rule from {from} lookup {}", rule.table),
            None => format!("rule lookup {}", rule.table),
        };
        delete(removal, what, || socket.delete_rule(&rule));
    }
    for proxy in proxies {
        delete(removal, format!("proxy neighbour {}", proxy.address), || socket.delete_neighbour(&proxy));
    }
    for route in routes {
        delete(removal, format!("route {} table {}", route.destination, route.table), || socket.delete_route(&route));
    }
    for link in links {
        delete(removal, format!("link {}", link.name), || socket.delete_link(link.index));
    }
    Ok(())
}

/// The host's objects, by the planner that created them, with an empty desired state. One of our VLAN links that another network uses
/// stays, and so does an address that routes of other programs need.
fn hosts(sysctl_root: &Path, others: &OtherNetworks, removal: &mut Removal) -> Result<(), Error> {
    let mut places = Places::host(sysctl_root).map_err(|source| Error::Kernel { what: "links", source })?;
    let mut observed = host::observe(&[], &mut places).map_err(|error| Error::Host(Box::new(error)))?;
    debug_assert!(observed.iter().all(|(place, _)| *place == Place::Host));
    observed.retain(|(_, object)| match kept(object, others) {
        Some(why) => {
            removal.left.push(why);
            false
        }
        None => true,
    });
    for step in datapath::plan(&[], &observed) {
        if !removal.applied {
            removal.steps.push(step.to_string());
            continue;
        }
        let failed = datapath::dismantle(std::slice::from_ref(&step), &mut places);
        match failed.into_iter().next() {
            Some(failure) => {
                removal.failures.push(Error::Network { what: failure.step.to_string(), source: failure.source });
            }
            None => removal.steps.push(step.to_string()),
        }
    }
    Ok(())
}

/// Why one of our objects stays.
fn kept(object: &Object, others: &OtherNetworks) -> Option<String> {
    match object {
        Object::Link(link) => Some(format!("link {}: {}", link.name, others.user_of_our_link(&link.name)?)),
        Object::Address(held) => {
            Some(format!("address {} dev {}: {}", held.address, held.link, others.user_of_address(held)?))
        }
        _ => None,
    }
}

/// What is gone already is no error: a link's routes go with it.
fn delete(removal: &mut Removal, what: String, request: impl FnOnce() -> Result<(), netlink::Error>) {
    let what = format!("delete {what}");
    removal.step(what.clone(), || match request() {
        Err(error) if error.is_not_found() => Ok(()),
        other => other.map_err(|source| Error::Network { what, source }),
    });
}
