//! What the host's links say about the primary VNIC.

use netlink::{Link, Route, RouteFilter, Socket};
use vcn::{Family, MacAddr, TableId};

/// The MACs of the host's links.
pub(crate) fn macs() -> Result<Vec<MacAddr>, netlink::Error> {
    Ok(Socket::open()?.links()?.into_iter().filter_map(|link| link.mac).collect())
}

/// The device of a default route of the main table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Uplink {
    pub(crate) family: Family,
    pub(crate) mac: MacAddr,
    /// The route, as `ip route` shows it.
    pub(crate) route: String,
}

/// The uplinks, and the MACs of all devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Uplinks {
    /// The preferred one first; IPv4 before IPv6.
    pub(crate) all: Vec<Uplink>,
    pub(crate) devices: Vec<MacAddr>,
}

/// The uplinks; none if the preferred default route uses no device (but a tunnel or a bond).
pub(crate) fn uplinks() -> Result<Uplinks, netlink::Error> {
    let mut socket = Socket::open()?;
    let links = socket.links()?;
    let is_device = |link: &&Link| {
        let is_stacked = link.kind.as_deref().is_some_and(|kind| kind != "veth");
        !(link.loopback || is_stacked || link.master.is_some() || link.vlan.is_some())
    };
    let devices: Vec<&Link> = links.iter().filter(is_device).collect();
    let mut found = Uplinks { all: Vec::new(), devices: devices.iter().filter_map(|link| link.mac).collect() };
    for family in Family::ALL {
        let filter = RouteFilter { table: Some(TableId::MAIN), ..RouteFilter::all(family) };
        let mut routes = socket.routes(&filter)?;
        routes.retain(|route| route.destination.prefix() == 0);
        routes.sort_by_key(Route::metric);
        let uplink = |route: &Route| {
            let link = devices.iter().find(|link| link.index == route.oif)?;
            let via = route.gateway.map(|gateway| format!(" via {gateway}")).unwrap_or_default();
            Some(Uplink {
                family,
                mac: link.mac?,
                route: format!("default{via} dev {} metric {}", link.name, route.metric()),
            })
        };
        if found.all.is_empty() && routes.first().is_some_and(|route| uplink(route).is_none()) {
            return Ok(Uplinks::default());
        }
        found.all.extend(routes.iter().filter_map(uplink));
    }
    Ok(found)
}
