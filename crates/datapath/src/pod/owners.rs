//! Which attachment each pod address on this host belongs to, by the routes and the aliases of the links they lead to:
//! what the kernel remembers when a record is lost.

use std::collections::HashMap;

use netlink::RouteFilter;
use vcn::{Family, HOST_LINK_PREFIX, IfName, LINK_ALIAS_PREFIX, PODS_TABLE, PROTOCOL, PodRoute};

use crate::error::during;
use crate::{Error, Places};

/// The owners of all pod addresses, found by the routes that lead to pods.
///
/// # Errors
/// [`Error::Observe`] when the kernel does not answer.
pub fn owners(places: &mut Places) -> Result<Vec<PodRoute>, Error> {
    let links = places.host.links().map_err(during("links"))?;
    let ours: HashMap<u32, (IfName, Option<String>)> = links
        .into_iter()
        .filter(|link| link.name.as_str().starts_with(HOST_LINK_PREFIX))
        .map(|link| {
            let identity = link.alias.and_then(|alias| Some(alias.strip_prefix(LINK_ALIAS_PREFIX)?.to_owned()));
            (link.index, (link.name, identity))
        })
        .collect();
    let mut owners = Vec::new();
    if ours.is_empty() {
        return Ok(owners);
    }
    for family in Family::ALL {
        let filter = RouteFilter { family, table: Some(PODS_TABLE), protocol: Some(PROTOCOL), oif: None };
        let routes = places.host.routes(&filter).map_err(during(format_args!("{family} routes to pods")))?;
        owners.extend(routes.into_iter().filter_map(|route| {
            let (link, identity) = ours.get(&route.oif)?.clone();
            Some(PodRoute { address: route.destination.ip(), link, identity })
        }));
    }
    Ok(owners)
}
