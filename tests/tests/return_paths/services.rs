//! The VCN's resolver, time server and metadata service answer on the primary VNIC only, at an IPv4 and an IPv6 address: pods
//! of secondary VNICs reach them by it, in its name, whatever family they have.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use netlink::{Address, Socket};
use sandbox::{DropReason, Pod};
use vcn::{METADATA_ADDRESS, METADATA_ADDRESS_V6};

use crate::world::{World, wait_for};

const ANSWER: Duration = Duration::from_secs(3);
const RESOLVER: u16 = 53;
const TIME: u16 = 123;
const METADATA: u16 = 80;
/// Something that no pod is to reach, whoever may listen there.
const OTHER: u16 = 3260;

fn asks_time(pod: &Pod, server: IpAddr) -> bool {
    let exchange = || {
        let any: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0)).unwrap();
        socket.set_read_timeout(Some(ANSWER)).unwrap();
        // Version 4, client.
        let mut query = [0; 48];
        query[0] = 0x23;
        socket.connect((server, TIME))?;
        socket.send(&query)?;
        socket.recv(&mut query)
    };
    pod.run(exchange).unwrap().is_ok_and(|length| length >= 48)
}

fn connects(pod: &Pod, server: IpAddr, port: u16) -> bool {
    pod.run(|| TcpStream::connect_timeout(&SocketAddr::new(server, port), ANSWER)).unwrap().is_ok()
}

/// Takes a pod's IPv4 address away.
fn without_ipv4(pod: &Pod, address: IpAddr) {
    let remove = || {
        let mut socket = Socket::open().unwrap();
        let index = socket.index_of(&"eth0".parse().unwrap()).unwrap();
        socket.delete_address(&Address::new(index, address.into())).unwrap();
    };
    pod.run(remove).unwrap();
}

#[test]
fn a_pod_with_ipv6_alone_asks_for_names_time_and_metadata_and_for_nothing_else_there() {
    let world = World::start();
    let [one, two] = world.servers();
    let (v4, v6) = (IpAddr::V4(METADATA_ADDRESS), IpAddr::V6(METADATA_ADDRESS_V6));
    for server in [&one, &two] {
        wait_for(&server.label, || asks_time(&server.pod, v4));
        without_ipv4(&server.pod, server.address.ipv4.unwrap());
        assert!(!asks_time(&server.pod, v4), "{} has no IPv4 any more", server.label);
        wait_for(&server.label, || asks_time(&server.pod, v6));
        for port in [RESOLVER, METADATA] {
            wait_for(&format!("{}, port {port}", server.label), || connects(&server.pod, v6, port));
        }
        assert!(!connects(&server.pod, v6, OTHER), "{}", server.label);
    }
    // Dropped by us and not by the fabric; and what arrived was sent by the primary VNIC, in its name.
    let reached = |drop: &sandbox::Dropped| {
        matches!(drop.reason, DropReason::MetadataFromSecondary | DropReason::ForeignSource(_))
    };
    assert!(!world.vcn.drops().iter().any(reached), "{:?}", world.vcn.drops());
    let listing = world.on_node("nft", &["list", "table", "inet", vcn::NFT_TABLE], "");
    let dropped = listing.lines().find(|line| line.contains("to other ports of fd00:c1::a9fe:a9fe: drop")).unwrap();
    assert!(!dropped.contains("packets 0 "), "{dropped}");
}
