//! Our kernel objects: rules and routes with our protocol number, links with our alias, the VNICs' addresses, proxy neighbours
//! of pods, the nft tables.

use std::collections::HashSet;
use std::net::IpAddr;
use std::path::Path;
use std::slice;

use datapath::{Object, Places, host};
use netlink::{NeighbourFilter, RouteFilter, Socket};
use vcn::{Family, PODS_TABLE, PROTOCOL, RulePriorities};

use super::OtherNetworks;
use crate::decide::is_of_our_pod;
use crate::error::Error;
use crate::uninstall::Removal;

/// Pods' rules, proxy neighbours, routes and links.
pub(super) fn remove_pods(removal: &mut Removal) -> Result<(), Error> {
    let listing = |what: &str| Error::kernel(format!("listing {what}"));
    let mut socket = Socket::open().map_err(listing("links"))?;
    let (mut routes, mut rules) = (Vec::new(), Vec::new());
    for family in Family::ALL {
        let filter = RouteFilter { table: Some(PODS_TABLE), protocol: Some(PROTOCOL), ..RouteFilter::all(family) };
        routes.extend(socket.routes(&filter).map_err(listing("routes to pods"))?);
        rules.extend(socket.rules(family).map_err(listing("policy rules"))?);
    }
    rules.retain(|rule| rule.protocol == PROTOCOL && rule.priority == RulePriorities::FROM_POD && !rule.unmodeled);
    let mut addresses: HashSet<IpAddr> = routes.iter().map(|route| route.destination.ip()).collect();
    addresses.extend(rules.iter().filter_map(|rule| rule.from.map(|from| from.ip())));
    let proxies = socket.neighbours(&NeighbourFilter { proxy: true, ..NeighbourFilter::default() });
    let proxies = proxies.map_err(listing("proxy neighbours"))?;
    let links = socket.links().map_err(listing("links"))?;
    for rule in rules {
        let from = rule.from.map(|from| format!(" from {from}")).unwrap_or_default();
        delete(removal, format!("rule{from} lookup {}", rule.table), || socket.delete_rule(&rule));
    }
    for proxy in proxies.iter().filter(|proxy| addresses.contains(&proxy.address)) {
        delete(removal, format!("proxy neighbour {}", proxy.address), || socket.delete_neighbour(proxy));
    }
    for route in routes {
        delete(removal, format!("route {} table {}", route.destination, route.table), || socket.delete_route(&route));
    }
    for link in links.into_iter().filter(is_of_our_pod) {
        delete(removal, format!("link {}", link.name), || socket.delete_link(link.index));
    }
    Ok(())
}

/// The host's objects, by the planner that created them, with an empty desired state. One of our VLAN links that another network uses
/// stays, and so does an address that routes of other programs need.
pub(super) fn remove_hosts(sysctl_root: &Path, others: &OtherNetworks, removal: &mut Removal) -> Result<(), Error> {
    let mut places = Places::host(sysctl_root).map_err(Error::kernel("listing links"))?;
    let mut observed = host::observe(&[], &mut places).map_err(Error::kernel("reading the host's network"))?;
    observed.retain(|(_, object)| {
        let kept = kept(object, others);
        removal.left.extend(kept.clone());
        kept.is_none()
    });
    for step in datapath::plan(&[], &observed) {
        removal.step(step.to_string(), || {
            let failed = datapath::dismantle(slice::from_ref(&step), &mut places).into_iter().next();
            failed.map_or(Ok(()), |failure| Err(Error::kernel(format!("removing {}", failure.step))(failure.source)))
        });
    }
    Ok(())
}

fn kept(object: &Object, others: &OtherNetworks) -> Option<String> {
    match object {
        Object::Link(link) => Some(format!("link {}: {}", link.name, others.user_of_link(&link.name)?)),
        Object::Address(held) => {
            Some(format!("address {} dev {}: {}", held.address, held.link, others.user_of_address(held)?))
        }
        _ => None,
    }
}

/// What is gone already is not an error: a link's routes go with it.
fn delete(removal: &mut Removal, what: String, request: impl FnOnce() -> Result<(), netlink::Error>) {
    let what = format!("delete {what}");
    removal.step(what.clone(), || match request() {
        Err(error) if error.is_not_found() => Ok(()),
        other => other.map_err(Error::kernel(format!("removing {what}"))),
    });
}
