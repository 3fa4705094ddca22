//! The kernel: every rule and route with our protocol number, every link with our alias, the addresses they tell to be
//! VNICs', proxy neighbours for pods, the nft tables.

use std::collections::HashSet;
use std::net::IpAddr;
use std::path::Path;

use datapath::{Object, Place, Places, host};
use netlink::{NeighbourFilter, RouteFilter, Socket};
use vcn::{Family, HOST_LINK_PREFIX, LINK_ALIAS_PREFIX, PODS_TABLE, PROTOCOL, RulePriorities};

use super::Others;
use crate::{Error, Removal};

/// Takes all of it back.
pub(super) fn take_back(sysctl_root: &Path, others: &Others, removal: &mut Removal) {
    if let Err(error) = pods(removal) {
        removal.failures.push(error);
    }
    if let Err(error) = hosts(sysctl_root, others, removal) {
        removal.failures.push(error);
    }
}

/// What is pods': first their links, with which routes to them go; then the rules from them and the proxies for them.
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
        take(removal, what, || socket.delete_rule(&rule));
    }
    for proxy in proxies {
        take(removal, format!("proxy neighbour {}", proxy.address), || socket.delete_neighbour(&proxy));
    }
    for route in routes {
        take(removal, format!("route {} table {}", route.destination, route.table), || socket.delete_route(&route));
    }
    for link in links {
        take(removal, format!("link {}", link.name), || socket.delete_link(link.index));
    }
    Ok(())
}

/// What is the host's: by the same planner that made it, with nothing wanted. A VLAN link of ours that others live by
/// stays, and an address that others' routes hang on.
fn hosts(sysctl_root: &Path, others: &Others, removal: &mut Removal) -> Result<(), Error> {
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

/// Why something of ours stays.
fn kept(object: &Object, others: &Others) -> Option<String> {
    match object {
        Object::Link(link) => Some(format!("link {}: {}", link.name, others.of_ours(&link.name)?)),
        Object::Address(held) => {
            Some(format!("address {} dev {}: {}", held.address, held.link, others.of_address(held)?))
        }
        _ => None,
    }
}

/// What is gone already is fine: a link takes its routes along.
fn take(removal: &mut Removal, what: String, delete: impl FnOnce() -> Result<(), netlink::Error>) {
    let what = format!("delete {what}");
    removal.step(what.clone(), || match delete() {
        Err(error) if error.is_not_found() => Ok(()),
        other => other.map_err(|source| Error::Network { what, source }),
    });
}
