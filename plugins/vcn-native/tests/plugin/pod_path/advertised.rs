//! A pod that says it is a router: no host end believes it, and what the host sends over IPv6 goes where it went before.

use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::AsRawFd;

use datapath::host::{HostNetwork, PodServices, desired, placed};
use datapath::{Object, Places, apply, plan};
use host_harness::{Families, assert_success, error_of, ip, name};
use netlink::{Address, Link, RouteFilter, Socket};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn6, sendto, setsockopt};
use nix::sys::socket::{bind, socket, sockopt};
use vcn::{Family, TableId};

use crate::node::{Node, Pod};

const IMPOSTOR: &str = "fe80::bad";
/// The same as the host's own kind of router sends: type, code, checksum (the kernel's), hop limit, flags, a lifetime of 1800 s,
/// reachable and retransmission times. It has 2001:db8:666::/64 as a prefix to take an address from.
const ADVERTISEMENT: [u8; 48] = [
    134, 0, 0, 0, 64, 0x08, 0x07, 0x08, 0, 0, 0, 0, 0, 0, 0, 0, 3, 4, 64, 0xc0, 0, 1, 0x51, 0x80, 0, 0, 0x38, 0x40, 0,
    0, 0, 0, 0x20, 0x01, 0x0d, 0xb8, 0x06, 0x66, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];

/// Sends an ICMPv6 message to all nodes on the pod's link as a neighbour would, and sees that the host uses what was sent.
fn says(pod: &Pod, message: &[u8]) {
    let send = || {
        let mut own = Socket::open().unwrap();
        let index = own.index_of(&name("eth0")).unwrap();
        let impostor: Ipv6Addr = IMPOSTOR.parse().unwrap();
        own.replace_address(&Address { nodad: true, ..Address::new(index, format!("{impostor}/64").parse().unwrap()) })
            .unwrap();
        let raw = socket(AddressFamily::Inet6, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::IcmpV6).unwrap();
        setsockopt(&raw, sockopt::Ipv6MulticastHops, &255).unwrap();
        let address = |it| SockaddrIn6::from(SocketAddrV6::new(it, 0, 0, index));
        bind(raw.as_raw_fd(), &address(impostor)).unwrap();
        sendto(raw.as_raw_fd(), message, &address("ff02::1".parse().unwrap()), MsgFlags::empty()).unwrap();
    };
    // The link drops what it is given until its queue is attached: so it is sent again behind what arrived.
    for _ in 0..2 {
        pod.netns.run(send).unwrap();
        assert!(pod.reaches("10.0.0.2"), "the host answers what came behind it");
    }
}

pub(crate) fn set(node: &Node, setting: &str, value: &str) {
    node.sh(&format!("echo {value} >/proc/sys/{setting}"));
}

/// Makes the agent's nft tables, as they are without secondary VNICs.
pub(crate) fn make_agents_tables(node: &Node, pods: PodServices) {
    let objects = desired(&HostNetwork { primary: name("ens5"), vnics: Vec::new(), pods: Some(pods) });
    let tables: Vec<_> = objects.into_iter().filter(|object| matches!(object, Object::NftTable(_))).collect();
    let apply = || apply(&plan(&placed(tables), &[]), &mut Places::host("/proc/sys".as_ref()).unwrap()).unwrap();
    node.host.run(apply).unwrap();
}

/// Where the host's default route goes, and the addresses it made itself of what was advertised.
fn believed(node: &Node) -> Vec<String> {
    node.in_host(|socket| {
        let main = RouteFilter { table: Some(TableId::MAIN), ..RouteFilter::all(Family::Ipv6) };
        let routes = socket.routes(&main).unwrap();
        let defaults = routes.iter().filter(|it| it.destination.prefix() == 0).map(|it| format!("{:?}", it.gateway));
        let addresses = socket.addresses(None).unwrap();
        let made = addresses.iter().map(|it| it.address.to_string()).filter(|it| it.starts_with("2001:db8:666:"));
        defaults.chain(made).collect()
    })
}

/// The host end, which every pod here has one of.
pub(crate) fn host_end(node: &Node) -> Link {
    let links = node.in_host(|socket| socket.links().unwrap());
    links.into_iter().find(|it| it.name.as_str().starts_with("vcn")).unwrap()
}

/// A node whose kernel knows IPv6 and, as far as `settings` say, takes what routers advertise.
fn host(families: Families, settings: &[(&str, &str)]) -> Node {
    let node = Node::new(families);
    settings.iter().for_each(|(setting, value)| set(&node, setting, value));
    node
}

#[test]
fn host_ignores_router_advertisements_of_a_pod() {
    let ipv4_only: &[_] = &[("net/ipv6/conf/all/forwarding", "0"), ("net/ipv6/conf/default/forwarding", "0")];
    for (families, settings) in [
        (Families::V4, ipv4_only),
        // The host forwards, and new links do not: what a hardening drop-in does to a node that is at work.
        (Families::Dual, &[("net/ipv6/conf/default/forwarding", "0")]),
        // The settings of a host that is to have its default route by advertisements and to forward nevertheless.
        (Families::Dual, &[("net/ipv6/conf/default/accept_ra", "2")]),
    ] {
        let node = host(families, settings);
        let pod = Pod::new("a");
        let conf = node.add_to_check(&pod);
        says(&pod, &ADVERTISEMENT);
        assert_eq!(believed(&node), [""; 0], "{settings:?}");
        assert_success(&node.cni("CHECK", &pod, &conf));

        // The test would tell: it is this setting that keeps the host from it, and CHECK names it.
        let end = host_end(&node).name;
        set(&node, &format!("net/ipv6/conf/{end}/accept_ra"), "2");
        says(&pod, &ADVERTISEMENT);
        assert!(believed(&node).contains(&format!("{:?}", Some(ip(IMPOSTOR)))), "{:?}", believed(&node));
        let (code, text) = error_of(&node.cni("CHECK", &pod, &conf));
        assert!(code == 107 && text.contains(&format!("sysctl net/ipv6/conf/{end}/accept_ra=0 (was 2)")), "{text}");
    }
}

/// Where a plugin of an older version made the link, say, or a person gave it another setting.
#[test]
fn agent_table_drops_router_only_messages_for_all_pod_families() {
    let node = host(Families::V4, &[("net/ipv6/conf/all/forwarding", "0"), ("net/ipv6/conf/default/forwarding", "0")]);
    let pod = Pod::new("a");
    node.add(&pod);
    set(&node, &format!("net/ipv6/conf/{}/accept_ra", host_end(&node).name), "1");
    make_agents_tables(&node, PodServices { may_use_metadata: true, may_spoof: true, ipv6: false });
    says(&pod, &ADVERTISEMENT);
    // Type, code, checksum, reserved; the better next hop; where to.
    let mut redirect = [0; 40];
    redirect[0] = 137;
    says(&pod, &redirect);
    assert_eq!(believed(&node), [""; 0]);
    let listed = node.sh(&format!("nft list table inet {}", vcn::NFT_TABLE));
    let dropped = |comment: &str| {
        let rule = listed.lines().find(|line| line.contains(comment)).unwrap();
        !rule.contains("counter packets 0 ")
    };
    assert!(dropped("vcn* router advertisements: drop") && dropped("vcn* IPv6 redirects: drop"), "{listed}");

    node.sh(&format!("nft delete table inet {}", vcn::NFT_TABLE));
    says(&pod, &ADVERTISEMENT);
    assert!(believed(&node).contains(&format!("{:?}", Some(ip(IMPOSTOR)))), "the table kept it away: {listed}");
}
