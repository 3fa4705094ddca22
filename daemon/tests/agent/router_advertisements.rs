//! The IPv6 default route that the primary VNIC's router advertises stays, although the kernel forwards from now on.

use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::AsRawFd;

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn6, sendto, setsockopt};
use nix::sys::socket::{socket, sockopt};
use vcn::Family;

use crate::follow_up::dual_stack_node;
use crate::node::{Node, name, wait_for};

const ROUTER: &str = "fe80::a";

/// Sends one as the primary VNIC's router does: default router for 1800 s.
fn advertise(node: &Node) {
    advertise_on(node, "ens3", ROUTER);
}

fn advertise_on(node: &Node, link: &str, router: &str) {
    node.inside_fabric(|| {
        let index = netlink::Socket::open().unwrap().index_of(&name(link)).unwrap();
        let raw = socket(AddressFamily::Inet6, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::IcmpV6).unwrap();
        setsockopt(&raw, sockopt::Ipv6MulticastHops, &255).unwrap();
        let all_nodes = SockaddrIn6::from(SocketAddrV6::new("ff02::1".parse().unwrap(), 0, 0, index));
        let source = SockaddrIn6::from(SocketAddrV6::new(router.parse::<Ipv6Addr>().unwrap(), 0, 0, index));
        nix::sys::socket::bind(raw.as_raw_fd(), &source).unwrap();
        // Type, code, checksum (the kernel's), hop limit, flags, lifetime, reachable and retransmission times.
        let message = [134, 0, 0, 0, 64, 0, 0x07, 0x08, 0, 0, 0, 0, 0, 0, 0, 0];
        sendto(raw.as_raw_fd(), &message, &all_nodes, MsgFlags::empty()).unwrap();
    });
}

fn has_default(node: &Node) -> bool {
    node.routes(Family::Ipv6, 254).contains(&format!("::/0 {ROUTER}"))
}

/// As a machine boots: it takes advertisements and forwards nothing.
fn booted() -> Node {
    let node = dual_stack_node();
    node.sh("cd /proc/sys/net/ipv6/conf; echo 0 >all/forwarding; echo 1 >ens3/accept_ra; echo 1 >ens5/accept_ra");
    node.fabric_sh(&format!("ip link set ens3 up; ip addr add {ROUTER}/64 dev ens3 nodad"));
    node
}

#[test]
fn advertised_default_route_survives_the_agents_start() {
    let node = booted();
    let learned = || {
        advertise(&node);
        has_default(&node)
    };
    wait_for("the default route", learned, || format!("{:?}", node.routes(Family::Ipv6, 254)));
    let agent = node.ready_agent(&[]);
    assert_eq!(node.sysctl("net/ipv6/conf/all/forwarding"), "1");
    assert!(has_default(&node), "{:?}\n{}", node.routes(Family::Ipv6, 254), agent.log());
    // If another program removes it, it is learned again.
    node.sh("ip -6 route del default");
    assert!(!has_default(&node));
    wait_for("the default route to be learned again", learned, || format!("{:?}", node.routes(Family::Ipv6, 254)));
}

/// Where it does not forward, the kernel takes advertisements on every link.
#[test]
fn advertisements_on_a_secondary_vnic_are_ignored() {
    const SECOND: &str = "fe80::200:17ff:fe00:1";
    let node = booted();
    // The VNIC is the host's own.
    std::fs::remove_file(node.npn()).unwrap();
    let agent = node.ready_agent(&["--pod-network", "none"]);
    wait_for("its link", || node.on(|socket| socket.link(&name("ens5")).unwrap().running), || agent.log());
    let learned = || {
        // First, so that it has been heard when the other is.
        advertise_on(&node, "ens5", SECOND);
        advertise(&node);
        has_default(&node)
    };
    wait_for("the primary's default route", learned, || format!("{:?}", node.routes(Family::Ipv6, 254)));
    let main = node.routes(Family::Ipv6, 254);
    assert!(!main.contains(&format!("::/0 {SECOND}")), "{main:?}");
}
