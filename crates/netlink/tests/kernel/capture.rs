//! Which packets a filter of a capture passes, on the loopback link of a fresh namespace.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use netlink::{Address, CaptureTap, LinkChange, Netns, PacketFilter, PacketProtocol, Socket};
use vcn::IfName;

/// The last packet of each trial.
const END: &[u8] = b"the end of the trial";

#[test]
fn filter_passes_packets_of_its_protocol_address_and_port() {
    let netns = Netns::create().unwrap();
    let mut kernel = Socket::open_in(&netns).unwrap();
    let lo = IfName::new("lo").unwrap();
    kernel.change_link_named(&lo, &[LinkChange::Up]).unwrap();
    let index = kernel.index_of(&lo).unwrap();
    for text in ["10.0.0.1", "10.0.0.2", "fd00::1", "fd00::2"] {
        let block = ipnetwork::IpNetwork::from(text.parse::<IpAddr>().unwrap());
        kernel.add_address(&Address { nodad: true, ..Address::new(index, block) }).unwrap();
    }
    netns.run(|| trials(index)).unwrap();
}

fn trials(index: u32) {
    let at = |text: &str, port| SocketAddr::new(text.parse().unwrap(), port);
    let pairs = [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")];
    let sockets: Vec<UdpSocket> = pairs.iter().map(|(source, _)| UdpSocket::bind(at(source, 1000)).unwrap()).collect();
    let targets: Vec<UdpSocket> = pairs
        .iter()
        .flat_map(|(_, target)| [2000, 3000].map(|port| UdpSocket::bind(at(target, port)).unwrap()))
        .collect();
    for target in &targets {
        super::tap::wait_until_reachable(target);
    }
    let (host, any) = (|text: &str| Some(text.parse::<IpAddr>().unwrap()), PacketFilter::default());
    let udp = PacketFilter { protocol: Some(PacketProtocol::Udp), ..any };
    for (filter, expected) in [
        (any, vec![(4, 2000), (4, 3000), (6, 2000), (6, 3000)]),
        (udp, vec![(4, 2000), (4, 3000), (6, 2000), (6, 3000)]),
        (PacketFilter { host: host("10.0.0.2"), ..any }, vec![(4, 2000), (4, 3000)]),
        (PacketFilter { host: host("fd00::1"), ..udp }, vec![(6, 2000), (6, 3000)]),
        (PacketFilter { host: host("10.0.0.9"), ..any }, vec![]),
        (PacketFilter { port: Some(2000), ..any }, vec![(4, 2000), (6, 2000)]),
        (PacketFilter { port: Some(3000), host: host("fd00::2"), ..udp }, vec![(6, 3000)]),
        (PacketFilter { port: Some(1000), ..udp }, vec![(4, 2000), (4, 3000), (6, 2000), (6, 3000)]),
        (PacketFilter { protocol: Some(PacketProtocol::Tcp), ..any }, vec![]),
        (PacketFilter { protocol: Some(PacketProtocol::Tcp), port: Some(2000), ..any }, vec![]),
        (PacketFilter { protocol: Some(PacketProtocol::Arp), ..any }, vec![]),
    ] {
        let mut tap = CaptureTap::open(filter, Some(index), 128).unwrap();
        // The last one is seen by a tap without a filter: what the other passes came before.
        let mut all = CaptureTap::open(any, None, 128).unwrap();
        for (socket, (_, target)) in sockets.iter().zip(pairs) {
            for port in [2000, 3000] {
                socket.send_to(&[b'x'; 300], at(target, port)).unwrap();
            }
        }
        sockets[0].send_to(END, at("10.0.0.2", 2000)).unwrap();
        while all.next(Duration::from_secs(60)).unwrap().unwrap().length as usize != 28 + END.len() {}
        let mut seen = Vec::new();
        while let Some(packet) = tap.next(Duration::ZERO).unwrap() {
            let version = packet.bytes[0] >> 4;
            let header = if version == 4 { 20 } else { 40 };
            // Each is seen when it leaves, and when it arrives.
            if packet.length as usize == header + 8 + 300 && packet.direction == 4 {
                assert_eq!((packet.bytes.len(), packet.index), (128, index));
                assert_eq!(packet.protocol, if version == 4 { 0x0800 } else { 0x86dd });
                assert!(packet.time > Duration::from_secs(1_700_000_000));
                seen.push((version, u16::from_be_bytes([packet.bytes[header + 2], packet.bytes[header + 3]])));
            }
        }
        assert_eq!((seen, tap.losses().unwrap()), (expected, 0), "{filter:?}");
    }
}
