//! What the host's links say about the primary VNIC.

use netlink::{Link, Route, RouteFilter, Socket};
use vcn::{Family, MacAddr, TableId, Vnic};

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

/// The default route that shows that a list of VNICs lacks the primary one. Its link belongs to no listed VNIC, although the
/// first listed VNIC is here, and no default route uses that one. If links have other MACs than the VNICs on them (bifurcated
/// ports), the host cannot tell.
pub(crate) fn lacks_primary<'a>(listed: &[Vnic], uplinks: &'a Uplinks) -> Option<&'a Uplink> {
    let first = listed.first().filter(|first| uplinks.devices.contains(&first.mac))?;
    let preferred = uplinks.all.first().filter(|uplink| !listed.iter().any(|vnic| vnic.mac == uplink.mac))?;
    (!uplinks.all.iter().any(|uplink| uplink.mac == first.mac)).then_some(preferred)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{self, vm_vnics};

    #[test]
    fn list_without_vnic_of_default_route_lacks_the_primary_vnic() {
        let all = vm_vnics();
        let [primary, pods] = [all[0].mac, all[1].mac];
        let lacks = |listed: &[Vnic], routes: &[MacAddr], devices: &[MacAddr]| {
            let uplink =
                |mac: &MacAddr| Uplink { family: Family::Ipv4, mac: *mac, route: format!("default dev {mac}") };
            let uplinks = Uplinks { all: routes.iter().map(uplink).collect(), devices: devices.to_vec() };
            lacks_primary(listed, &uplinks).map(|uplink| uplink.mac)
        };
        assert_eq!(lacks(&all, &[primary], &[primary, pods]), None);
        assert_eq!(lacks(&all[1..], &[primary], &[primary, pods]), Some(primary));
        // The default route uses a secondary VNIC: both are listed, and the list has the primary one first.
        assert_eq!(lacks(&all, &[pods], &[primary, pods]), None);
        // Ports with other MACs than the VNICs on them, or a device that is not a VNIC's.
        let port = fixture::mac(0x77);
        assert_eq!(lacks(&all, &[port], &[port]), None);
        assert_eq!(lacks(&all, &[port, primary], &[primary, pods, port]), None);
        assert_eq!(lacks(&all, &[port], &[primary, pods, port]), Some(port));
        assert_eq!(lacks(&[], &[primary], &[primary]), None);
    }
}
