//! What an OCI image does at boot: it configures the primary VNIC, and leaves the others alone.

use std::net::Ipv4Addr;

use ipnetwork::{IpNetwork, Ipv4Network};
use netlink::{Address, LinkChange, Netns, Route, RouteFilter, Socket};
use vcn::{Family, Mtu, TableId};

use super::everywhere;
use crate::network::Vnic;

/// `RTPROT_DHCP`: NetworkManager got the configuration from DHCP.
const DHCP: u8 = 16;

/// Configures the primary VNIC: its address, the default route, 169.254.0.0/16 on the link (boot disks, metadata).
/// IPv6 gets its default route from router advertisements, so none is made here.
pub(crate) fn primary(netns: &Netns, vnic: &Vnic) -> netlink::Result<()> {
    let mut socket = Socket::open_in(netns)?;
    let link = socket.index_of(&vnic.link)?;
    socket.change_link(link, &[LinkChange::Up, LinkChange::Mtu(Mtu::VCN)])?;
    if let (Some(own), Some(block), Some(router)) = (vnic.address.ipv4, vnic.subnet.ipv4(), vnic.subnet.router_v4()) {
        let own_block = IpNetwork::new(own, block.prefix()).unwrap_or_else(|_| own.into());
        socket.add_address(&Address::new(link, own_block))?;
        let mut default = Route::new(everywhere(Family::Ipv4), link, TableId::MAIN, DHCP);
        default.gateway = Some(router.into());
        socket.add_route(&default)?;
        let link_local = Ipv4Network::new(Ipv4Addr::new(169, 254, 0, 0), 16);
        if let Ok(link_local) = link_local {
            let mut route = Route::new(link_local.into(), link, TableId::MAIN, DHCP);
            route.scope_link = true;
            socket.add_route(&route)?;
        }
    }
    if let Some(own) = vnic.address.ipv6 {
        // DHCPv6 gives a single address. The fabric gives it to no other VNIC, so it need not be probed.
        let mut address = Address::new(link, own.into());
        address.nodad = true;
        socket.add_address(&address)?;
    }
    Ok(())
}

/// Whether the kernel accepted a router advertisement: the default route of IPv6 is there.
pub(crate) fn has_ipv6_default(netns: &Netns) -> netlink::Result<bool> {
    let filter = RouteFilter { table: Some(TableId::MAIN), ..RouteFilter::all(Family::Ipv6) };
    let everywhere = everywhere(Family::Ipv6);
    Ok(Socket::open_in(netns)?.routes(&filter)?.iter().any(|route| route.destination == everywhere))
}
