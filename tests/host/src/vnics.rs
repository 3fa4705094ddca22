//! A host with the links of VNICs, whose far ends are routers, and what the agent would say of them.

use std::os::fd::AsFd;

use ipam::{FamilyPool, VnicPool};
use netlink::{Address, LinkChange, LinkKind, Netns, NewLink, Peer, Route, RouteFilter, Socket, Sysctls};
use vcn::{Family, IfName, Mtu, PROTOCOL, PerFamily, Purpose, TableId};

use crate::namespace::{PATIENCE, ip, name, within};

/// As many as VMs usually have for pods; it takes two to choose between.
const VNICS: u8 = 2;

/// Which families pools offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Families {
    /// Addresses of IPv4 alone.
    V4,
    /// Addresses of IPv6 alone.
    V6,
    /// Addresses of both families.
    Dual,
}

/// A host whose links `ens5` and `ens6` lead to a router each, 10.0.N.1 and `2001:db8:N::1`. It is 10.0.N.2 and
/// `2001:db8:N::2` there, and has a table for each.
#[derive(Debug)]
pub struct VnicHost {
    /// The network namespace of the host.
    pub host: Netns,
    /// The routers'; the links live as long as these.
    pub routers: Vec<Netns>,
}

impl VnicHost {
    /// As soon as it hears its own addresses.
    pub fn new() -> Self {
        let host = Netns::create().unwrap();
        let routers: Vec<_> = (0..VNICS).map(|_| Netns::create().unwrap()).collect();
        let on_host = || {
            let mut socket = Socket::open().unwrap();
            socket.change_link_named(&name("lo"), &[LinkChange::Up]).unwrap();
            for family in Family::ALL {
                if let datapath::Object::Rule(rule) = datapath::host::to_pods(family) {
                    socket.add_rule(&rule).unwrap();
                }
            }
            set("net/ipv4/ip_forward", "1");
            set("net/ipv6/conf/all/forwarding", "1");
            (0..VNICS).zip(&routers).for_each(|(number, router)| host_side(&mut socket, number, router));
        };
        host.run(on_host).unwrap();
        (0..VNICS).zip(&routers).for_each(|(number, router)| router.run(|| router_side(number)).unwrap());
        // The kernel makes the local routes of IPv6 addresses a moment after them.
        let hears = || {
            let routes = Socket::open().unwrap().routes(&RouteFilter::all(Family::Ipv6)).unwrap();
            let own = (0..VNICS).map(|number| ip(&format!("2001:db8:{number}::2")));
            own.into_iter().all(|own| routes.iter().any(|it| it.destination.ip() == own && it.table == TableId::LOCAL))
        };
        let heard = host.run(|| within(PATIENCE, hears)).unwrap();
        assert!(heard, "the kernel never made the routes of the node's addresses");
        Self { host, routers }
    }
}

impl Default for VnicHost {
    fn default() -> Self {
        Self::new()
    }
}

/// The pools of one of its VNICs with these ranges of addresses, of IPv4 and of IPv6, in which N is the VNIC's number.
pub fn vnic_pool(number: u8, families: Families, [range4, range6]: [&str; 2]) -> VnicPool {
    let pool = |subnet: &str, range: &str| FamilyPool {
        router: ip(&format!("{subnet}1")),
        reserved: vec![ip(&format!("{subnet}2"))],
        addresses: vec![range.replace('N', &number.to_string()).parse().unwrap()],
    };
    let ipv4 = pool(&format!("10.0.{number}."), range4);
    let ipv6 = pool(&format!("2001:db8:{number}::"), range6);
    VnicPool {
        vnic_id: format!("ocid1.vnic.oc1.iad.v{number}").parse().unwrap(),
        link: link(number),
        mac: format!("02:00:17:00:00:0{}", number + 1).parse().unwrap(),
        link_has_mac: false,
        mtu: Mtu::VCN,
        table: table(number),
        purpose: Purpose::Pods,
        attach: None,
        families: PerFamily {
            ipv4: (families != Families::V6).then_some(ipv4),
            ipv6: (families != Families::V4).then_some(ipv6),
        },
    }
}

/// A node's VNICs have been up for long when pods come; these have not. IPv6 resolves no neighbour from a link whose own
/// address is still being checked for duplicates.
pub fn no_detection(link: &IfName) {
    set(&format!("net/ipv6/conf/{link}/accept_dad"), "0");
}

fn host_side(socket: &mut Socket, number: u8, router: &Netns) {
    let link = link(number);
    let peer = Peer { name: name("port"), mac: None, mtu: Some(Mtu::VCN), netns: Some(router.as_fd()) };
    let mut veth = NewLink::new(link.clone(), LinkKind::Veth(peer));
    veth.mtu = Some(Mtu::VCN);
    socket.add_link(&veth).unwrap();
    no_detection(&link);
    socket.change_link_named(&link, &[LinkChange::Up]).unwrap();
    let index = socket.index_of(&link).unwrap();
    for subnet in [format!("10.0.{number}."), format!("2001:db8:{number}::")] {
        let (own, via) = (ip(&format!("{subnet}2")), ip(&format!("{subnet}1")));
        add_address(socket, index, &own.to_string());
        let mut on_link = Route::new(via.into(), index, table(number), PROTOCOL);
        on_link.scope_link = via.is_ipv4();
        socket.add_route(&on_link).unwrap();
        let mut default = Route::new(datapath::pod::everything(Family::of(via)), index, table(number), PROTOCOL);
        default.gateway = Some(via);
        default.onlink = via.is_ipv4();
        socket.add_route(&default).unwrap();
    }
    set(&format!("net/ipv6/conf/{link}/proxy_ndp"), "1");
    set(&format!("net/ipv4/conf/{link}/rp_filter"), "2");
    for family in ["ipv4", "ipv6"] {
        set(&format!("net/{family}/neigh/{link}/proxy_delay"), "0");
    }
}

fn router_side(number: u8) {
    let mut socket = Socket::open().unwrap();
    no_detection(&name("port"));
    socket.change_link_named(&name("port"), &[LinkChange::Up]).unwrap();
    let port = socket.index_of(&name("port")).unwrap();
    for address in [format!("10.0.{number}.1/24"), format!("2001:db8:{number}::1/64")] {
        add_address(&mut socket, port, &address);
    }
}

fn add_address(socket: &mut Socket, link: u32, address: &str) {
    let mut address = Address::new(link, address.parse().unwrap());
    address.nodad = true;
    socket.add_address(&address).unwrap();
}

fn set(setting: &str, value: &str) {
    Sysctls::default().write(setting, value).unwrap();
}

fn link(number: u8) -> IfName {
    name(&format!("ens{}", 5 + number))
}

fn table(number: u8) -> TableId {
    TableId(vcn::TABLE_BASE + 1 + u32::from(number))
}
