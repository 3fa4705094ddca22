//! Sockets of probes: bound to the requested address, port and link.

use std::ffi::CString;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use ipnetwork::IpNetwork;
use netlink::RoutedPacket;
use nettest::probe::{ObservedRoute, SendTask};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use vcn::Family;

/// A probe's way: both ends and the kernel's route.
#[derive(Clone, Debug)]
pub(super) struct ProbeRoute {
    /// The target, with the link's number where it is link-local.
    pub(super) target: SocketAddr,
    pub(super) source: Option<IpAddr>,
    /// The source's port; any if 0.
    pub(super) source_port: u16,
    /// The link to bind to.
    pub(super) link: Option<String>,
    /// The MTU of the link that the route has.
    pub(super) mtu: u32,
    pub(super) subnet: Option<IpNetwork>,
    /// All subnets of the source's link.
    pub(super) link_subnets: Vec<IpNetwork>,
    pub(super) route: ObservedRoute,
}

impl ProbeRoute {
    /// Queries the kernel. A missing route is not an error.
    pub(super) fn find(task: &SendTask, mut target: SocketAddr) -> Result<Self, netlink::Error> {
        let mut kernel = netlink::Socket::open()?;
        let addresses = kernel.addresses(None)?;
        let links = kernel.links()?;
        let name = |index: u32| links.iter().find(|link| link.index == index).map(|link| link.name.to_string());
        let holder = |address: IpAddr| addresses.iter().find(|held| held.address.ip() == address);
        let found = kernel.route_of(&RoutedPacket { by: None, from: task.source, to: target.ip() }).ok();
        let source = task.source.or_else(|| found.as_ref().and_then(|route| route.source));
        let held = source.and_then(holder);
        let expected = held.and_then(|held| name(held.index)).unwrap_or_default();
        let route = ObservedRoute {
            device: found.as_ref().and_then(|route| name(route.oif)).unwrap_or_default(),
            expected: expected.clone(),
            gateway: found.as_ref().and_then(|route| route.gateway),
        };
        if let (SocketAddr::V6(v6), Some(found)) = (target, &found)
            && v6.ip().is_unicast_link_local()
        {
            target = SocketAddrV6::new(*v6.ip(), v6.port(), 0, found.oif).into();
        }
        let mtu = found.as_ref().and_then(|route| links.iter().find(|link| link.index == route.oif));
        Ok(Self {
            target,
            source,
            source_port: task.source_port,
            link: Some(expected).filter(|name| task.force_link && !name.is_empty()),
            mtu: mtu.map_or(1500, |link| link.mtu.0),
            subnet: held.map(|held| held.address).filter(is_subnet),
            link_subnets: held.map(|held| subnets_of(held.index, &addresses)).unwrap_or_default(),
            route,
        })
    }

    pub(super) fn family(&self) -> Family {
        Family::of(self.target.ip())
    }

    /// A socket that is bound and not connected.
    pub(super) fn open(&self, kind: Type, protocol: Option<Protocol>) -> io::Result<Socket> {
        let family = self.family();
        let domain = if family == Family::Ipv4 { Domain::IPV4 } else { Domain::IPV6 };
        let socket = Socket::new(domain, kind, protocol)?;
        if let Some(link) = &self.link {
            socket.bind_device(Some(CString::new(link.as_str())?.as_bytes_with_nul()))?;
        }
        if let Some(source) = self.source {
            // The port of a connection that was reset a moment ago.
            socket.set_reuse_address(kind == Type::STREAM)?;
            let port = if kind == Type::RAW { 0 } else { self.source_port };
            socket.bind(&SockAddr::from(SocketAddr::new(source, port)))?;
        }
        Ok(socket)
    }

    /// A connected stream. Closing it resets the connection, so that its port is free at once.
    pub(super) fn connect(&self, within: Duration) -> io::Result<Socket> {
        let socket = self.open(Type::STREAM, Some(Protocol::TCP))?;
        socket.set_linger(Some(Duration::ZERO))?;
        socket.connect_timeout(&SockAddr::from(self.target), within)?;
        Ok(socket)
    }
}

/// The link that has an address of this host, and the link's subnets.
pub(super) fn link_of(address: IpAddr) -> Option<(String, Vec<IpNetwork>)> {
    let mut kernel = netlink::Socket::open().ok()?;
    let addresses = kernel.addresses(None).ok()?;
    let index = addresses.iter().find(|held| held.address.ip() == address)?.index;
    let link = kernel.links().ok()?.into_iter().find(|link| link.index == index)?;
    Some((link.name.to_string(), subnets_of(index, &addresses)))
}

/// The subnets of a link: DHCPv6 gives a single address, so that often only IPv4 shows the VNIC's subnet.
fn subnets_of(index: u32, addresses: &[netlink::Address]) -> Vec<IpNetwork> {
    let held = addresses.iter().filter(|held| held.index == index).map(|held| held.address);
    // Each link has fe80::/64: it tells no subnets apart.
    let is_local = |held: &IpNetwork| matches!(held.ip(), IpAddr::V6(address) if address.is_unicast_link_local());
    held.filter(is_subnet).filter(|held| !is_local(held)).collect()
}

fn is_subnet(held: &IpNetwork) -> bool {
    held.prefix() < Family::of(held.ip()).host_prefix()
}
