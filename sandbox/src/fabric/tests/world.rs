//! A small VCN: two nodes in subnet `nodes`, one of them with a secondary VNIC in subnet `pods` and a bare-metal trunk.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    EthernetFrame, EthernetProtocol, Icmpv4Packet, Icmpv4Repr, Icmpv6Repr, IpProtocol, Ipv4Packet, Ipv4Repr,
    TcpControl, TcpPacket, TcpRepr, TcpSeqNumber,
};
use vcn::{MacAddr, Ocid, PerFamily};

use crate::Subnet;
use crate::fabric::frame::{self, Pair};
use crate::fabric::{DropReason, Fabric, Outgoing, Port, VnicPort};

pub(super) const SERVICES: (Port, MacAddr) = (port(9), MacAddr([2, 0, 0, 0, 0, 9]));
pub(super) const A: (Port, MacAddr) = (port(1), MacAddr([2, 0, 0x17, 0, 0, 1]));
pub(super) const B: (Port, MacAddr) = (port(2), MacAddr([2, 0, 0x17, 0, 0, 2]));
/// A's secondary VNIC.
pub(super) const A2: (Port, MacAddr) = (port(3), MacAddr([2, 0, 0x17, 0, 0, 3]));
pub(super) const A_IP: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
pub(super) const B_IP: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);
pub(super) const POD_IP: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 7);
pub(super) const BLOCK_IP: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 66);
pub(super) const A_IP6: Ipv6Addr = Ipv6Addr::new(0x2603, 0xc020, 0, 1, 0, 0, 0, 2);
pub(super) const B_IP6: Ipv6Addr = Ipv6Addr::new(0x2603, 0xc020, 0, 1, 0, 0, 0, 3);
pub(super) const ROUTER: (MacAddr, Ipv4Addr) = (MacAddr([0, 0, 0x17, 0, 0, 0xa]), Ipv4Addr::new(10, 0, 0, 1));
pub(super) const ROUTER6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0x200, 0x17ff, 0xfe00, 0xa);
pub(super) const PODS_ROUTER: (MacAddr, Ipv4Addr) = (MacAddr([0, 0, 0x17, 0, 0, 0xb]), Ipv4Addr::new(10, 0, 1, 1));
pub(super) const NOW: Duration = Duration::from_secs(100);

const fn port(wire: u32) -> Port {
    Port { wire, tag: None }
}

fn subnet(name: &str, ipv4: &str, ipv6: Option<&str>, router_mac: MacAddr) -> Arc<Subnet> {
    let id: Ocid = format!("ocid1.subnet.oc1.iad.{name}").parse().unwrap();
    let blocks = PerFamily { ipv4: ipv4.parse().ok(), ipv6: ipv6.and_then(|block| block.parse().ok()) };
    let compartment = "ocid1.compartment.oc1..c".parse().unwrap();
    let (second_ipv6, prohibit_public_ip) = (None, true);
    Arc::new(Subnet { name: name.into(), id, compartment, blocks, second_ipv6, router_mac, prohibit_public_ip })
}

pub(super) fn fabric() -> Fabric {
    let nodes = subnet("nodes", "10.0.0.0/24", Some("2603:c020:0:1::/64"), ROUTER.0);
    let pods = subnet("pods", "10.0.1.0/24", None, PODS_ROUTER.0);
    let vnic = |label: &str, mac, subnet: &Arc<Subnet>, addresses: &[IpAddr]| VnicPort {
        label: label.into(),
        mac,
        primary: subnet.name == "nodes",
        subnet: Arc::clone(subnet),
        addresses: addresses.iter().copied().collect(),
        blocks: Vec::new(),
    };
    let mut fabric = Fabric::new(SERVICES.0, SERVICES.1);
    fabric.attach(A.0, vnic("a", A.1, &nodes, &[A_IP.into(), A_IP6.into()]));
    fabric.attach(B.0, vnic("b", B.1, &nodes, &[B_IP.into(), B_IP6.into()]));
    let mut secondary = vnic("a2", A2.1, &pods, &[Ipv4Addr::new(10, 0, 1, 2).into(), POD_IP.into()]);
    secondary.blocks.push("10.0.1.64/28".parse().unwrap());
    fabric.attach(A2.0, secondary);
    fabric
}

/// An ICMP echo request on both layers.
pub(super) fn ping(pair: Pair<Ipv4Addr>) -> Vec<u8> {
    let message = Icmpv4Repr::EchoRequest { ident: 1, seq_no: 2, data: b"sandbox" };
    ipv4(pair, IpProtocol::Icmp, message.buffer_len(), |payload| {
        message.emit(&mut Icmpv4Packet::new_unchecked(payload), &ChecksumCapabilities::default());
    })
}

/// The end of a TCP connection from this port.
pub(super) fn fin(pair: Pair<Ipv4Addr>, port: u16) -> Vec<u8> {
    let segment = TcpRepr {
        src_port: port,
        dst_port: 40000,
        control: TcpControl::Fin,
        seq_number: TcpSeqNumber(7),
        ack_number: Some(TcpSeqNumber(9)),
        window_len: 512,
        window_scale: None,
        max_seg_size: None,
        sack_permitted: false,
        sack_ranges: [None; 3],
        timestamp: None,
        payload: &[],
    };
    let (from, to) = (pair.from.1.into(), pair.to.1.into());
    ipv4(pair, IpProtocol::Tcp, segment.buffer_len(), |payload| {
        segment.emit(&mut TcpPacket::new_unchecked(payload), &from, &to, &ChecksumCapabilities::default());
    })
}

fn ipv4(pair: Pair<Ipv4Addr>, next_header: IpProtocol, payload_len: usize, emit: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let header = Ipv4Repr { src_addr: pair.from.1, dst_addr: pair.to.1, next_header, payload_len, hop_limit: 64 };
    let mut bytes = vec![0; 14 + header.buffer_len() + payload_len];
    let mut outer = EthernetFrame::new_unchecked(bytes.as_mut_slice());
    frame::header_of(EthernetProtocol::Ipv4, pair.from.0, pair.to.0).emit(&mut outer);
    let mut packet = Ipv4Packet::new_unchecked(outer.payload_mut());
    header.emit(&mut packet, &ChecksumCapabilities::default());
    emit(packet.payload_mut());
    bytes
}

pub(super) fn ping6(pair: Pair<Ipv6Addr>) -> Vec<u8> {
    frame::icmpv6(pair, Icmpv6Repr::EchoRequest { ident: 1, seq_no: 2, data: b"sandbox" })
}

/// The fabric's ARP question: as anybody's, but for that it is sent to the VNIC's MAC.
pub(super) fn arp_question(pair: Pair<Ipv4Addr>) -> Vec<u8> {
    let mut question = frame::arp_request(pair.from.0, pair.from.1, pair.to.1);
    frame::readdress(&mut question, pair.from.0, pair.to.0);
    question
}

/// Hands a frame in and expects it to be dropped, counted once at `at`.
#[track_caller]
pub(super) fn dropped(fabric: &mut Fabric, port: Port, bytes: &[u8]) -> (String, DropReason) {
    let before = fabric.drops();
    let out = fabric.handle(NOW, port, bytes);
    assert_eq!(out, Vec::<Outgoing>::new(), "nothing goes out");
    let mut new: Vec<_> = fabric.drops().into_iter().filter(|drop| !before.contains(drop)).collect();
    assert_eq!(new.len(), 1, "one reason: {new:?}");
    let drop = new.remove(0);
    (drop.at, drop.reason)
}
