//! Packets get where a VCN would take them, and nowhere else.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

use crate::fixture::{at, configure, reaches, two_nodes, wait_for, wait_for_drop, wait_until_reaches};
use sandbox::{DropReason, Node, NodeSpec, SERVICES_V6, SubnetSpec, Vcn};
use vcn::{Family, TableId};

fn own(node: &Node, family: Family) -> IpAddr {
    node.address(family).expect("an address")
}

#[test]
fn nodes_of_ipv6_only_subnet_reach_each_other_and_services() {
    let vcn = Vcn::builder()
        .subnet(SubnetSpec::new("six", &["2603:c020:0:6::/64"]))
        .node(NodeSpec::virtual_machine("node-a", "six"))
        .node(NodeSpec::virtual_machine("node-b", "six"))
        .start()
        .unwrap();
    let (a, b) = (vcn.node("node-a").unwrap(), vcn.node("node-b").unwrap());
    assert_eq!(a.address(Family::Ipv4), None);
    wait_until_reaches(at(a.netns(), own(&a, Family::Ipv6)), at(b.netns(), own(&b, Family::Ipv6)));
    a.run(|| TcpStream::connect((SERVICES_V6, 80)).unwrap()).unwrap();
}

#[test]
fn jumbo_packets_pass_whole() {
    let vcn = two_nodes();
    let a = vcn.node("node-a").unwrap();
    let b = own(&vcn.node("node-b").unwrap(), Family::Ipv4).to_string();
    // 8972 bytes of data make a packet of 9000; -M do forbids fragments.
    let ping = a.command("ping").args(["-c", "1", "-W", "5", "-M", "do", "-s", "8972", &b]).output().unwrap();
    assert!(ping.status.success(), "{}", String::from_utf8_lossy(&ping.stdout));
    assert_eq!(vcn.drops(), []);
}

#[test]
fn a_stream_arrives_unharmed() {
    let vcn = two_nodes();
    let (a, b) = (vcn.node("node-a").unwrap(), vcn.node("node-b").unwrap());
    let address = SocketAddr::new(own(&b, Family::Ipv4), 8080);
    let listener = b.run(|| TcpListener::bind(address)).unwrap().unwrap();
    let sent: Vec<u8> = (0..8_000_000_u32).map(|number| number.to_le_bytes()[0]).collect();
    let received = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = a.run(|| TcpStream::connect(address)).unwrap().unwrap();
            stream.write_all(&sent).unwrap();
        });
        let mut received = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut received).unwrap();
        received
    });
    assert!(sent == received, "8 MB, byte by byte");
    assert_eq!(vcn.drops(), [], "no segment was longer than the MTU");
}

#[test]
fn a_secondary_vnic_is_unreachable_until_it_is_configured() {
    let vcn = two_nodes();
    let (a, b) = (vcn.node("node-a").unwrap(), vcn.node("node-b").unwrap());
    let vnic = &b.vnics()[1];
    let target = vnic.address.ipv4.unwrap();
    assert!(!a.pings(None, target).unwrap());
    wait_for_drop(&vcn, "node-b/vnic-4", &DropReason::NoAnswer(target));

    configure(b.netns(), vnic, &vnic.link, TableId(100));
    for family in Family::ALL {
        let target = *vnic.address.of(family).unwrap();
        wait_for("the secondary VNIC answers", || reaches(at(a.netns(), own(&a, family)), at(b.netns(), target)));
    }
}
