//! What listens on the host's loopback is out of reach for pods, also where portmap let a host end carry packets to it.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::time::Duration;

use datapath::host::PodServices;
use host_harness::{Families, PATIENCE, ip, sh, within};

use crate::node::{Node, Pod};
use crate::pod_path::advertised::{host_end, make_agents_tables, set};

/// How often the pod tries.
const ROUNDS: u8 = 5;

/// Whether a datagram of the pod's reaches the host's loopback. Behind each another one goes to the host's own address, until
/// that arrives.
fn reaches_loopback(pod: &Pod, loopback: &UdpSocket, own: &UdpSocket) -> bool {
    let mut reached = false;
    for round in 0..ROUNDS {
        let send = |to: &UdpSocket| {
            UdpSocket::bind("0.0.0.0:0").unwrap().send_to(&[round], to.local_addr().unwrap()).unwrap();
        };
        assert!(within(PATIENCE, || {
            pod.netns.run(|| [loopback, own].map(send)).unwrap();
            let mut heard = [0];
            matches!(own.recv_from(&mut heard), Ok((1, _)) if heard == [round])
        }));
        reached |= loopback.recv_from(&mut [0]).is_ok();
    }
    reached
}

#[test]
fn pod_cannot_reach_host_loopback_through_route_localnet() {
    let node = Node::new(Families::V4);
    let pod = Pod::new("a");
    node.add(&pod);
    make_agents_tables(&node, PodServices { may_use_metadata: true, may_spoof: false, ipv6: false });
    // As portmap with `snat` does.
    set(&node, &format!("net/ipv4/conf/{}/route_localnet", host_end(&node).name), "1");
    // 127.0.0.1 is behind the gateway for this pod.
    sh(&pod.netns, "ip address delete 127.0.0.1/8 dev lo");
    let listener = |address: IpAddr| node.host.run(|| UdpSocket::bind((address, 0)).unwrap()).unwrap();
    let (loopback, own) = (listener(Ipv4Addr::LOCALHOST.into()), listener(ip("10.0.0.2")));
    loopback.set_nonblocking(true).unwrap();
    own.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    assert!(!reaches_loopback(&pod, &loopback, &own));
    node.sh(&format!("nft delete table inet {}", vcn::NFT_TABLE));
    assert!(reaches_loopback(&pod, &loopback, &own), "only the rule keeps it away");
}
