//! What a packet tap delivers, on the loopback link of a fresh namespace.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use netlink::{Address, LinkChange, Netns, PacketTap, Socket};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, sendto, socket,
};
use vcn::IfName;

#[test]
fn tap_delivers_packets_of_two_addresses_and_their_errors() {
    let netns = Netns::create().unwrap();
    let mut kernel = Socket::open_in(&netns).unwrap();
    let lo = IfName::new("lo").unwrap();
    kernel.change_link_named(&lo, &[LinkChange::Up]).unwrap();
    let index = kernel.index_of(&lo).unwrap();
    let families = [["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"], ["fd00::1", "fd00::2", "fd00::3", "fd00::4"]];
    for texts in families {
        let all = texts.map(|text| text.parse::<IpAddr>().unwrap());
        for address in all {
            let block = ipnetwork::IpNetwork::from(address);
            kernel.add_address(&Address { nodad: true, ..Address::new(index, block) }).unwrap();
        }
        netns.run(|| delivers(all)).unwrap();
    }
}

fn delivers([source, target, other, router]: [IpAddr; 4]) {
    let open = |address| UdpSocket::bind(SocketAddr::new(address, 0)).unwrap();
    let (one, two, three) = (open(source), open(target), open(other));
    for socket in [&one, &two, &three] {
        wait_until_reachable(socket);
    }
    let mut tap = PacketTap::open(source, target).unwrap();
    one.send_to(b"x", three.local_addr().unwrap()).unwrap();
    three.send_to(b"x", one.local_addr().unwrap()).unwrap();
    send_error(router, source, other);
    send_error(router, source, target);
    one.send_to(b"x", two.local_addr().unwrap()).unwrap();
    two.send_to(b"x", one.local_addr().unwrap()).unwrap();
    let sent = [(router, source), (source, target), (target, source)];
    // Each is seen when it leaves and when it arrives.
    let mut expected = sent.map(|(from, to)| [(from, to, true), (from, to, false)]).concat();
    let mut seen = Vec::new();
    while seen.len() < expected.len() {
        let packet = tap.next(Duration::from_secs(60)).unwrap().unwrap();
        let (from, to) = addresses(packet.bytes);
        seen.push((from, to, packet.outgoing));
    }
    expected.sort();
    seen.sort();
    assert_eq!(seen, expected);
}

/// The kernel adds the route of an IPv6 address some time after the address, and drops packets until then.
pub(crate) fn wait_until_reachable(socket: &UdpSocket) {
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    for _ in 0..600 {
        socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
        if socket.recv(&mut [0]).is_ok() {
            return;
        }
    }
    panic!("{:?} gets no packets for a minute", socket.local_addr());
}

fn addresses(packet: &[u8]) -> (IpAddr, IpAddr) {
    let v4 = |at: usize| IpAddr::from(<[u8; 4]>::try_from(&packet[at..at + 4]).unwrap());
    let v6 = |at: usize| IpAddr::from(<[u8; 16]>::try_from(&packet[at..at + 16]).unwrap());
    if packet[0] >> 4 == 4 { (v4(12), v4(16)) } else { (v6(8), v6(24)) }
}

/// An ICMP error of a router about a packet from `source` to `destination`, sent to the source: the network is unreachable.
fn send_error(router: IpAddr, source: IpAddr, destination: IpAddr) {
    let (family, protocol, mut error) = match router {
        IpAddr::V4(_) => (AddressFamily::Inet, SockProtocol::Icmp, vec![3, 0, 0, 0, 0, 0, 0, 0, 0x45]),
        IpAddr::V6(_) => (AddressFamily::Inet6, SockProtocol::IcmpV6, vec![1, 0, 0, 0, 0, 0, 0, 0, 0x60]),
    };
    error.resize(if router.is_ipv4() { 8 + 12 } else { 8 + 8 }, 0);
    for address in [source, destination] {
        match address {
            IpAddr::V4(address) => error.extend(address.octets()),
            IpAddr::V6(address) => error.extend(address.octets()),
        }
    }
    let raw = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol).unwrap();
    let at = |address| SockaddrStorage::from(SocketAddr::new(address, 0));
    bind(raw.as_raw_fd(), &at(router)).unwrap();
    sendto(raw.as_raw_fd(), &error, &at(source), MsgFlags::empty()).unwrap();
}
