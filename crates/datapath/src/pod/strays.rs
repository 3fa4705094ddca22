//! What is ours about single addresses, and of no pod that can be seen.

use std::collections::HashMap;
use std::net::IpAddr;

use netlink::{NeighbourFilter, RouteFilter};
use vcn::{Family, HOST_LINK_PREFIX, IfName, PODS_TABLE, PROTOCOL, RulePriorities};

use crate::{Error, NeighbourSpec, Object, Places, RuleSpec};

/// Rules and proxy neighbours of ours, each with its address, to which no route to a pod leads: verbs that were killed left
/// them, or a VNIC's link was renamed between ADD and DEL. Those of pods whose record was lost are theirs: these have a route.
/// Whose the others are, the record says: to be asked afterwards, for an ADD that is under way has none of them before it
/// is on record.
///
/// # Errors
/// [`Error::Observe`] when the kernel does not answer.
pub fn strays(places: &mut Places) -> Result<Vec<(IpAddr, Object)>, Error> {
    let during = |source| Error::Observe { what: "what is about no pod".into(), source };
    let socket = &mut places.host;
    let links = socket.links().map_err(during)?.into_iter();
    let links: HashMap<u32, IfName> = links.map(|link| (link.index, link.name)).collect();
    let mut found = Vec::new();
    let proxies = NeighbourFilter { proxy: true, ..NeighbourFilter::default() };
    for proxy in socket.neighbours(&proxies).map_err(during)? {
        let link = links.get(&proxy.index).filter(|link| !link.as_str().starts_with(HOST_LINK_PREFIX));
        if let (Some(link), Some(PROTOCOL)) = (link, proxy.protocol) {
            let spec = NeighbourSpec { link: link.clone(), address: proxy.address, mac: None };
            found.push((proxy.address, Object::Neighbour(spec)));
        }
    }
    for family in Family::ALL {
        for rule in socket.rules(family).map_err(during)? {
            let narrower = rule.to.is_some()
                || rule.fwmark.is_some()
                || rule.iif.is_some()
                || rule.suppress.is_some()
                || rule.unmodelled;
            let netlink::Rule { priority, from, table, protocol, .. } = rule;
            if let (Some(net), RulePriorities::FROM_POD, PROTOCOL, false) = (from, priority, protocol, narrower) {
                let spec = RuleSpec { priority, family, from, to: None, fwmark: None, table, single: false };
                found.push((net.ip(), Object::Rule(spec)));
            }
        }
        let filter = RouteFilter { family, table: Some(PODS_TABLE), protocol: None, oif: None };
        let routes = socket.routes(&filter).map_err(during)?.into_iter();
        let routed: Vec<IpAddr> = routes.map(|route| route.destination.ip()).collect();
        found.retain(|(address, _)| !routed.contains(address));
    }
    Ok(found)
}
