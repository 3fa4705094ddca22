//! Which attachment each pod address on this host belongs to, by the routes and the aliases of the links they lead to.
//! The kernel remembers this when a record is lost.

use vcn::{LINK_ALIAS_PREFIX, PROTOCOL, PodRoute};

use crate::Snapshot;

/// The owners of all pod addresses, found by the routes that lead to pods.
pub fn owners(host: &Snapshot) -> Vec<PodRoute> {
    let owner = |route: &netlink::Route| {
        let link = host.links.iter().find(|link| link.index == route.oif)?;
        let identity = link.alias.as_ref().and_then(|alias| Some(alias.strip_prefix(LINK_ALIAS_PREFIX)?.to_owned()));
        let is_ours = route.protocol == PROTOCOL && link.name.is_of_pod();
        is_ours.then(|| PodRoute { address: route.destination.ip(), link: link.name.clone(), identity })
    };
    host.routes.iter().filter_map(owner).collect()
}
