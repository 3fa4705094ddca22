//! Routes against the real kernel.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netlink::{
    Address, Errno, LinkKind, Netns, NewLink, Peer, Route, RouteFilter, RouteKind, RoutedPacket, Rule, Socket,
};
use vcn::{Family, IfName, Mtu, Priority, TableId};

const PROTOCOL: u8 = 157;
const LINK: u32 = 10;

/// A socket in a fresh namespace with one link that is up and has addresses of both families.
fn fresh() -> (Netns, Socket) {
    let netns = Netns::create().unwrap();
    let mut socket = Socket::open_in(&netns).unwrap();
    let peer = Peer { name: IfName::new("wire").unwrap(), mac: None, mtu: None, netns: None };
    let new = NewLink::new(IfName::new("ens5").unwrap(), LinkKind::Veth(peer));
    socket.add_link(&NewLink { up: true, index: Some(LINK), ..new }).unwrap();
    socket.change_link_named(&IfName::new("wire").unwrap(), &[netlink::LinkChange::Up]).unwrap();
    socket.add_address(&Address::new(LINK, network("10.0.1.7/24"))).unwrap();
    socket.add_address(&Address { nodad: true, ..Address::new(LINK, network("fd00::7/64")) }).unwrap();
    (netns, socket)
}

fn network(text: &str) -> IpNetwork {
    text.parse().unwrap()
}

fn ip(text: &str) -> Option<IpAddr> {
    Some(text.parse().unwrap())
}

fn route(destination: &str, table: u32) -> Route {
    Route::new(network(destination), LINK, TableId(table), PROTOCOL)
}

fn ours(family: Family, table: u32) -> RouteFilter {
    RouteFilter { table: Some(TableId(table)), protocol: Some(PROTOCOL), ..RouteFilter::all(family) }
}

#[test]
fn added_objects_are_read_back_equal() {
    let (_netns, mut socket) = fresh();
    let routes = [
        Route { scope_link: true, ..route("10.0.1.1/32", 1001) },
        Route { gateway: ip("10.0.1.1"), onlink: true, source: ip("10.0.1.7"), ..route("0.0.0.0/0", 1001) },
        Route { priority: Some(7), mtu: Some(Mtu(1500)), scope_link: true, ..route("10.2.0.0/16", 1001) },
        Route { gateway: ip("fd00::1"), ..route("10.3.0.0/16", 1001) },
        Route { oif: 0, kind: RouteKind::Unreachable, ..route("10.4.0.0/16", 1001) },
        route("fe80::1/128", 1001),
        Route { gateway: ip("fe80::1"), onlink: true, source: ip("fd00::7"), ..route("::/0", 1001) },
        Route { priority: Some(7), mtu: Some(Mtu(1500)), ..route("fd02::/64", 1001) },
    ];
    for route in &routes {
        socket.add_route(route).unwrap_or_else(|error| panic!("{error}: {:?}", error.cause()));
    }
    for family in Family::ALL {
        let mut found = socket.routes(&ours(family, 1001)).unwrap();
        let mut expected: Vec<_> = routes.iter().filter(|route| route.family() == family).cloned().collect();
        found.sort_by_key(|route| route.destination);
        expected.sort_by_key(|route| route.destination);
        assert_eq!(found, expected);
    }
}

#[test]
fn filters_exclude_routes_of_other_protocols_and_links() {
    let (_netns, mut socket) = fresh();
    socket.add_route(&Route { scope_link: true, ..route("10.8.0.1/32", 254) }).unwrap();
    socket.add_route(&Route { scope_link: true, protocol: 4, ..route("10.8.0.2/32", 254) }).unwrap();
    let listed = socket.routes(&ours(Family::Ipv4, 254)).unwrap();
    assert_eq!(listed.iter().map(|route| route.destination).collect::<Vec<_>>(), [network("10.8.0.1/32")]);
    let by_link = RouteFilter { oif: Some(LINK), ..RouteFilter::all(Family::Ipv4) };
    assert!(socket.routes(&by_link).unwrap().iter().all(|route| route.oif == LINK));
    assert_eq!(
        Family::ALL.map(|family| socket.routes(&ours(family, 4711)).unwrap()),
        [[], []],
        "a table that was never used"
    );
    let gone = RouteFilter { oif: Some(4711), ..RouteFilter::all(Family::Ipv4) };
    assert!(socket.routes(&gone).unwrap_err().is_not_found());
}

#[test]
fn an_unreachable_gateway_is_refused_in_the_kernels_words() {
    let (_netns, mut socket) = fresh();
    let error = socket.add_route(&Route { gateway: ip("192.0.2.1"), ..route("0.0.0.0/0", 1001) }).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::ENETUNREACH));
    assert_eq!(error.cause().to_string(), "Network is unreachable (Nexthop has invalid gateway)");
    assert_eq!(error.to_string(), "cannot add route default via 192.0.2.1 dev 10 table 1001");
}

#[test]
fn existing_and_absent_routes_have_different_errors() {
    let (_netns, mut socket) = fresh();
    for destination in ["10.8.0.1/32", "fd08::1/128"] {
        let route = Route { scope_link: destination.starts_with("10"), ..route(destination, 1001) };
        assert!(socket.delete_route(&route).unwrap_err().is_not_found());
        socket.add_route(&route).unwrap();
        assert!(socket.add_route(&route).unwrap_err().is_already_exists());
        let changed = Route { mtu: Some(Mtu(1400)), ..route };
        socket.replace_route(&changed).unwrap();
        assert_eq!(socket.routes(&ours(changed.family(), 1001)).unwrap(), std::slice::from_ref(&changed));
        let foreign = Route { protocol: 4, ..changed.clone() };
        assert!(socket.delete_route(&foreign).unwrap_err().is_not_found(), "it has another maker");
        socket.delete_route(&changed).unwrap();
    }
}

#[test]
fn routes_that_this_crate_cannot_express_are_marked() {
    let (netns, mut socket) = fresh();
    let status = netns.run(|| {
        std::process::Command::new("ip")
            .args(["route", "add", "10.9.0.0/16", "table", "1001", "proto", "157"])
            .args(["nexthop", "via", "10.0.1.1", "dev", "ens5", "nexthop", "via", "10.0.1.2", "dev", "ens5"])
            .status()
    });
    assert!(status.unwrap().unwrap().success());
    let routes = socket.routes(&ours(Family::Ipv4, 1001)).unwrap();
    assert!(matches!(routes.as_slice(), [Route { unmodeled: true, .. }]), "{routes:?}");
}

/// Where a packet goes that comes in by the link `wire`, or the error number.
fn way(socket: &mut Socket, from: &str, to: &str) -> Result<(RouteKind, Option<IpAddr>, u32, u32), Option<Errno>> {
    let by = socket.index_of(&IfName::new("wire").unwrap()).unwrap();
    let packet = RoutedPacket { by: Some(by), from: from.parse().ok(), to: to.parse().unwrap() };
    let route = socket.route_of(&packet).map_err(|error| error.errno())?;
    assert_eq!(route.destination.ip(), packet.to);
    Ok((route.kind, route.gateway, route.oif, route.table.0))
}

#[test]
fn route_lookup_returns_path_of_packet_entering_by_a_link() {
    let (netns, mut socket) = fresh();
    let forward = |path: &str| std::fs::write(format!("/proc/sys/net/{path}"), "1").unwrap();
    netns.run(|| ["ipv4/ip_forward", "ipv6/conf/all/forwarding"].into_iter().for_each(forward)).unwrap();
    for (from, gateway, default, single, none) in [
        ("10.9.0.1", "10.0.1.1", "0.0.0.0/0", "192.0.2.7/32", "198.51.100.1"),
        ("fd09::1", "fd00::1", "::/0", "2001:db8::7/128", "2001:db8:1::1"),
    ] {
        let to = single.split('/').next().unwrap();
        let via = Route { gateway: ip(gateway), onlink: from == "10.9.0.1", ..route(default, 1001) };
        socket.add_route(&via).unwrap();
        // No rule leads there for other sources.
        assert_eq!(way(&mut socket, from, none), Err(Some(Errno::ENETUNREACH)), "{from}");
        let mut rule = Rule::new(Family::of(from.parse().unwrap()), Priority(1536), TableId(1001), PROTOCOL);
        rule.from = Some(from.parse::<IpAddr>().unwrap().into());
        socket.add_rule(&rule).unwrap();
        assert_eq!(way(&mut socket, from, to), Ok((RouteKind::Unicast, ip(gateway), LINK, 1001)));
        let prohibition = Route { kind: RouteKind::Prohibit, oif: 0, priority: Some(1), ..route(single, 1001) };
        socket.add_route(&prohibition).unwrap();
        let answer = way(&mut socket, from, to);
        assert!(matches!(answer, Err(Some(Errno::EACCES)) | Ok((RouteKind::Prohibit, ..))), "{answer:?}");
        let packet = RoutedPacket { by: Some(4321), from: from.parse().ok(), to: to.parse().unwrap() };
        assert!(socket.route_of(&packet).unwrap_err().is_not_found());
    }
}
