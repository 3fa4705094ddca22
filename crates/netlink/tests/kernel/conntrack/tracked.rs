//! Namespaces that track connections, and connections in them.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use ipnetwork::IpNetwork;
use netlink::nft::{Chain, ChainKind, Direction, Expression, Hook, Rule, Table, TableFamily};
use netlink::{Address, LinkChange, Netns, nft};
use vcn::IfName;

/// A namespace that tracks connections over its loopback, which has some addresses.
pub(crate) fn fresh(addresses: &[&str]) -> Netns {
    let netns = Netns::create().unwrap();
    let mut socket = netlink::Socket::open_in(&netns).unwrap();
    let lo = socket.index_of(&IfName::new("lo").unwrap()).unwrap();
    socket.change_link(lo, &[LinkChange::Up]).unwrap();
    for address in addresses {
        let network: IpNetwork = address.parse().unwrap();
        socket.add_address(&Address { nodad: true, ..Address::new(lo, network) }).unwrap();
    }
    // The kernel tracks only where some rule matches a connection's state.
    let rules = vec![Rule::new("track", [Expression::CtDirection(Direction::Original), Expression::Accept])];
    let chain = Chain { name: "out".to_owned(), hook: Hook::Output, kind: ChainKind::Filter, priority: 0, rules };
    let table = Table { family: TableFamily::Inet, name: "track".to_owned(), chains: vec![chain] };
    nft::NftSocket::open_in(&netns).unwrap().replace_tables(&[table]).unwrap();
    netns
}

pub(crate) fn exchange(netns: &Netns, from: &'static str, to: &'static str) {
    netns
        .run(|| {
            let receiver = UdpSocket::bind((to, 0)).unwrap();
            let sender = UdpSocket::bind((from, 0)).unwrap();
            deliver(&sender, receiver.local_addr().unwrap(), &receiver);
        })
        .unwrap();
}

/// Sends until it arrives: what is sent right after a link was raised may be lost.
pub(crate) fn deliver(sender: &UdpSocket, to: SocketAddr, receiver: &UdpSocket) {
    receiver.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let arrives = || {
        sender.send_to(b"hello", to).unwrap();
        receiver.recv(&mut [0; 8]).is_ok()
    };
    assert!((0..50).any(|_| arrives()), "nothing arrives at {to}");
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// So many connections of one address, each to a port of its own of another.
pub(crate) fn flood(netns: &Netns, from: &'static str, to: &'static str, connections: u16) {
    let send = || {
        let sender = UdpSocket::bind((from, 9)).unwrap();
        // No program listens: the kernel's answer fails the next call, and the packet after it goes out.
        let is_sent = |port| (0..3).any(|_| sender.send_to(b"hello", (ip(to), port)).is_ok());
        assert!((1000..1000 + connections).all(is_sent));
    };
    netns.run(send).unwrap();
}
