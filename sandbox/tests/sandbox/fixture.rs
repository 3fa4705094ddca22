//! A small VCN, and traffic in it by plain sockets.
#![allow(dead_code, reason = "each test file uses a part")]

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use ipnetwork::IpNetwork;
use netlink::{Address, LinkChange, Netns, Route, Rule, Socket};
use sandbox::{DropReason, NodeSpec, SubnetSpec, Vcn, Vnic, VnicSpec};
use vcn::{Family, IfName, Mtu, Priority, TableId};

/// Long enough for a busy machine, short enough for a test.
pub(crate) const CONDITION_TIMEOUT: Duration = Duration::from_secs(60);
/// How long silence must last to count as such.
pub(crate) const SILENCE: Duration = Duration::from_millis(300);

/// Two nodes with a secondary VNIC each, both families.
pub(crate) fn two_nodes() -> Vcn {
    two_nodes_of(|name| NodeSpec::virtual_machine(name, "nodes"))
}

/// The same of another kind of node.
pub(crate) fn two_nodes_of(node: impl Fn(&str) -> NodeSpec) -> Vcn {
    let pods = || VnicSpec::for_pods("pods", 7);
    let builder = Vcn::builder()
        .subnet(SubnetSpec::new("nodes", &["10.0.0.0/24", "2603:c020:0:1::/64"]))
        .subnet(SubnetSpec::new("pods", &["10.0.32.0/24", "2603:c020:0:2::/64"]));
    builder.node(node("node-a").vnic(pods())).node(node("node-b").vnic(pods())).start().expect("a sandbox")
}

pub(crate) fn network(text: &str) -> IpNetwork {
    text.parse().expect("a network")
}

/// A UDP socket inside a namespace; it stays there.
pub(crate) fn socket(netns: &Netns, address: IpAddr) -> UdpSocket {
    let bind = || -> io::Result<UdpSocket> {
        let socket = UdpSocket::bind(SocketAddr::new(address, 0))?;
        socket.set_read_timeout(Some(SILENCE))?;
        Ok(socket)
    };
    netns.run(bind).expect("enter").expect("bind")
}

/// Sends there and back. An error of kind `WouldBlock` is silence.
pub(crate) fn exchange(client: &UdpSocket, server: &UdpSocket) -> io::Result<()> {
    let mut buffer = [0; 64];
    client.send_to(b"there", server.local_addr()?)?;
    let (length, from) = server.recv_from(&mut buffer)?;
    assert_eq!((&buffer[..length], from), (&b"there"[..], client.local_addr()?), "addresses are not rewritten");
    server.send_to(b"back", from)?;
    let (length, _) = client.recv_from(&mut buffer)?;
    assert_eq!(&buffer[..length], b"back");
    Ok(())
}

/// An address in a namespace.
#[derive(Clone, Copy)]
pub(crate) struct Endpoint<'a> {
    netns: &'a Netns,
    address: IpAddr,
}

pub(crate) fn at(netns: &Netns, address: IpAddr) -> Endpoint<'_> {
    Endpoint { netns, address }
}

/// Whether two endpoints exchange packets.
pub(crate) fn reaches(from: Endpoint<'_>, to: Endpoint<'_>) -> bool {
    let (client, server) = (socket(from.netns, from.address), socket(to.netns, to.address));
    match exchange(&client, &server) {
        Ok(()) => true,
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => false,
        Err(error) => panic!("{} to {}: {error}", from.address, to.address),
    }
}

/// Waits until they do. A machine that is busy may take longer than silence lasts here, and its kernel makes the routes of an
/// IPv6 address later than the address: until then sending fails.
#[track_caller]
pub(crate) fn wait_until_reaches(from: Endpoint<'_>, to: Endpoint<'_>) {
    let answers = || exchange(&socket(from.netns, from.address), &socket(to.netns, to.address)).is_ok();
    wait_for(&format!("{} reaches {}", from.address, to.address), answers);
}

/// Configures a VNIC's link by hand as an agent would: address, own table, rule.
pub(crate) fn configure(netns: &Netns, vnic: &Vnic, link: &IfName, table: TableId) {
    let mut socket = Socket::open_in(netns).expect("a socket");
    let index = socket.index_of(link).expect("the link");
    socket.change_link(index, &[LinkChange::Up, LinkChange::Mtu(Mtu::VCN)]).expect("raise it");
    for (family, own) in vnic.address.iter() {
        let mut address = Address::new(index, IpNetwork::from(*own));
        address.nodad = true;
        socket.add_address(&address).expect("its address");
        let router = vnic.subnet.router(family).expect("a router");
        let mut via = Route::new(IpNetwork::from(router), index, table, 4);
        via.scope_link = family == Family::Ipv4;
        socket.add_route(&via).expect("a route to the router");
        let everywhere = if family == Family::Ipv4 { network("0.0.0.0/0") } else { network("::/0") };
        let mut default = Route::new(everywhere, index, table, 4);
        default.gateway = Some(router);
        socket.add_route(&default).expect("a default route");
        let mut rule = Rule::new(family, Priority(1500), table, 4);
        rule.from = Some(IpNetwork::from(*own));
        socket.add_rule(&rule).expect("a rule");
    }
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + CONDITION_TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {CONDITION_TIMEOUT:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until the fabric dropped something for a reason; gives the number of frames.
#[track_caller]
pub(crate) fn wait_for_drop(vcn: &Vcn, at: &str, reason: &DropReason) -> u64 {
    let frames =
        || vcn.drops().into_iter().find(|drop| drop.at == at && drop.reason == *reason).map_or(0, |drop| drop.frames);
    let deadline = Instant::now() + CONDITION_TIMEOUT;
    while frames() == 0 {
        assert!(Instant::now() < deadline, "{at}: {reason} not among {:?}", vcn.drops());
        std::thread::sleep(Duration::from_millis(10));
    }
    frames()
}
