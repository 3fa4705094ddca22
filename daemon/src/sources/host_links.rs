//! What the host's links say about the primary VNIC.

use netlink::{Link, RouteFilter, Socket};
use vcn::{Family, MacAddr, TableId};

/// The MACs of the host's links.
pub(crate) fn macs() -> Result<Vec<MacAddr>, netlink::Error> {
    Ok(Socket::open()?.links()?.into_iter().filter_map(|link| link.mac).collect())
}

/// The device of the main table's default route.
#[derive(Debug)]
pub(crate) struct Uplink {
    pub(crate) mac: MacAddr,
    /// The MACs of all devices.
    pub(crate) devices: Vec<MacAddr>,
}

/// The uplink; `None` if the default route uses no device (but a tunnel or a bond).
pub(crate) fn uplink() -> Result<Option<Uplink>, netlink::Error> {
    let mut socket = Socket::open()?;
    let links = socket.links()?;
    let is_device = |link: &&Link| {
        let is_stacked = link.kind.as_deref().is_some_and(|kind| kind != "veth");
        !(link.loopback || is_stacked || link.master.is_some() || link.vlan.is_some())
    };
    let devices: Vec<&Link> = links.iter().filter(is_device).collect();
    for family in Family::ALL {
        let filter = RouteFilter { table: Some(TableId::MAIN), ..RouteFilter::all(family) };
        let routes = socket.routes(&filter)?;
        let default = routes.iter().filter(|route| route.destination.prefix() == 0).min_by_key(|it| it.priority);
        if let Some(route) = default {
            let mac = devices.iter().find(|link| link.index == route.oif).and_then(|link| link.mac);
            let devices = devices.iter().filter_map(|link| link.mac).collect();
            return Ok(mac.map(|mac| Uplink { mac, devices }));
        }
    }
    Ok(None)
}
