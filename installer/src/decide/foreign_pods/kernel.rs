//! A pod as the kernel shows it: a veth into another namespace that belongs to no bridge and that a route to a single address
//! uses. Every pod of OKE's CNI has one for packets to its host. A link of the host has routes to subnets, and a container
//! behind a bridge has the bridge's.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;

use netlink::{Link, RouteFilter, RouteKind, Socket};
use vcn::{Family, IfName, LINK_ALIAS_PREFIX, PROTOCOL};

use super::PodEvidence;

/// A pod of another network, if there is one.
pub(super) fn pod() -> PodEvidence {
    look().map_err(|error| ("links and routes".to_owned(), error.to_string()))
}

fn look() -> Result<Option<String>, netlink::Error> {
    let mut socket = Socket::open()?;
    let links: BTreeMap<u32, IfName> =
        socket.links()?.into_iter().filter(leads_elsewhere).map(|link| (link.index, link.name)).collect();
    if links.is_empty() {
        return Ok(None);
    }
    // IPv6 has a route of this kind for an address of the host's own that is without its subnet.
    let own: HashSet<IpAddr> = socket.addresses(None)?.into_iter().map(|held| held.address.ip()).collect();
    for family in Family::ALL {
        for route in socket.routes(&RouteFilter { family, table: None, protocol: None, oif: None })? {
            let (to, single) = (route.destination.ip(), route.destination.prefix() == family.host_prefix());
            let of_pod = single && route.kind == RouteKind::Unicast && route.protocol != PROTOCOL && !own.contains(&to);
            if let (true, Some(link)) = (of_pod, links.get(&route.oif)) {
                return Ok(Some(format!("a route to {to} by {link}")));
            }
        }
    }
    Ok(None)
}

fn leads_elsewhere(link: &Link) -> bool {
    let ours = link.alias.as_ref().is_some_and(|alias| alias.starts_with(LINK_ALIAS_PREFIX));
    link.kind.as_deref() == Some("veth") && link.peer_netns_id.is_some() && link.master.is_none() && !ours
}
