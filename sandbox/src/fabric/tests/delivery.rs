//! Packets between VNICs.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use smoltcp::wire::{EthernetFrame, Ipv4Packet};

use super::world::{
    A, A_IP, A_IP6, A2, B, B_IP, B_IP6, BLOCK_IP, NOW, POD_IP, PODS_ROUTER, ROUTER, ROUTER6, SERVICES, arp_question,
    dropped, fabric, ping, ping6,
};
use crate::fabric::frame::{self, Pair};
use crate::fabric::{BOOT_DISK_V4, DropReason, Dropped, Port, SERVICES_V4};

#[test]
fn a_packet_waits_until_the_destination_answered_arp() {
    let mut fabric = fabric();
    let packet = ping(Pair { from: (A.1, A_IP), to: (B.1, B_IP) });
    assert_eq!(fabric.handle(NOW, A.0, &packet), [(B.0, arp_question(Pair { from: ROUTER, to: (B.1, B_IP) }))]);
    assert_eq!(fabric.handle(NOW, A.0, &packet), [], "one question is enough");
    let out = fabric.handle(NOW, B.0, &frame::arp_reply(Pair { from: (B.1, B_IP), to: ROUTER }));
    assert_eq!(out, [(B.0, packet.clone()), (B.0, packet.clone())], "unchanged within the subnet");
    assert_eq!(fabric.handle(NOW, A.0, &packet), [(B.0, packet)], "and now it is known");
    assert_eq!(fabric.drops(), []);
}

#[test]
fn a_packet_waits_until_the_destination_answered_ndp() {
    let mut fabric = fabric();
    let packet = ping6(Pair { from: (A.1, A_IP6), to: (B.1, B_IP6) });
    let mut question = frame::neighbour_solicitation(ROUTER.0, ROUTER6, B_IP6);
    frame::readdress(&mut question, ROUTER.0, B.1);
    assert_eq!(fabric.handle(NOW, A.0, &packet), [(B.0, question)]);
    let answer = frame::neighbour_advertisement(Pair { from: (B.1, B_IP6), to: (ROUTER.0, ROUTER6) }, B_IP6, false);
    assert_eq!(fabric.handle(NOW, B.0, &answer), [(B.0, packet)]);
}

#[test]
fn routed_packet_loses_one_hop_and_has_router_mac() {
    for destination in [POD_IP, BLOCK_IP] {
        let mut fabric = fabric();
        let packet = ping(Pair { from: (B.1, B_IP), to: (ROUTER.0, destination) });
        assert_eq!(
            fabric.handle(NOW, B.0, &packet),
            [(A2.0, arp_question(Pair { from: PODS_ROUTER, to: (A2.1, destination) }))]
        );
        let out = fabric.handle(NOW, A2.0, &frame::arp_reply(Pair { from: (A2.1, destination), to: PODS_ROUTER }));
        let [(port, bytes)] = out.as_slice() else { panic!("one frame, not {out:?}") };
        let frame = EthernetFrame::new_checked(bytes.as_slice()).unwrap();
        assert_eq!((*port, frame.src_addr().0, frame.dst_addr().0), (A2.0, PODS_ROUTER.0.0, A2.1.0));
        let inner = Ipv4Packet::new_checked(frame.payload()).unwrap();
        assert_eq!((inner.hop_limit(), inner.verify_checksum()), (63, true));
        assert_eq!((inner.src_addr(), inner.dst_addr()), (B_IP, destination));
    }
}

#[test]
fn the_router_also_carries_packets_within_a_subnet() {
    let mut fabric = fabric();
    let packet = ping(Pair { from: (A.1, A_IP), to: (ROUTER.0, B_IP) });
    assert_eq!(fabric.handle(NOW, A.0, &packet), [(B.0, arp_question(Pair { from: ROUTER, to: (B.1, B_IP) }))]);
}

#[test]
fn a_packet_for_an_address_without_an_answer_is_reported() {
    let mut fabric = fabric();
    let packet = ping(Pair { from: (A.1, A_IP), to: (B.1, B_IP) });
    assert_eq!(fabric.handle(NOW, A.0, &packet).len(), 1);
    let mut questions = 0;
    for later in 1..40 {
        questions += fabric.tick(NOW + Duration::from_millis(100) * later).len();
    }
    assert_eq!(questions, 3, "the fabric retries its question");
    let reason = DropReason::NoAnswer(IpAddr::V4(B_IP));
    assert_eq!(fabric.drops(), [Dropped { at: "b".into(), reason, frames: 1, first: None }]);
}

#[test]
fn a_jumbo_packet_passes() {
    let mut frame = ping(Pair { from: (A.1, A_IP), to: (B.1, B_IP) });
    frame.resize(14 + 9000, 0);
    assert_eq!(fabric().handle(NOW, A.0, &frame).len(), 1);
}

#[test]
fn the_router_answers_echo_requests() {
    let mut fabric = fabric();
    let out = fabric.handle(NOW, A.0, &ping(Pair { from: (A.1, A_IP), to: ROUTER }));
    let [(port, bytes)] = out.as_slice() else { panic!("one frame, not {out:?}") };
    let frame = EthernetFrame::new_checked(bytes.as_slice()).unwrap();
    let packet = Ipv4Packet::new_checked(frame.payload()).unwrap();
    assert_eq!((*port, packet.src_addr(), packet.dst_addr()), (A.0, ROUTER.1, A_IP));
    assert!(packet.verify_checksum());
    let out = fabric.handle(NOW, A.0, &ping6(Pair { from: (A.1, A_IP6), to: (ROUTER.0, ROUTER6) }));
    assert_eq!(out.len(), 1);
}

#[test]
fn an_unplugged_vnic_is_unknown() {
    let mut fabric = fabric();
    fabric.detach(B.0);
    let frame = ping(Pair { from: (A.1, A_IP), to: (B.1, B_IP) });
    assert_eq!(dropped(&mut fabric, A.0, &frame).1, DropReason::NoHolder(B_IP.into()));
    assert_eq!(dropped(&mut fabric, B.0, &frame), ("wire 2".into(), DropReason::NoVnic(None)));
}

#[test]
fn vnics_of_one_trunk_differ_by_their_tags() {
    let mut fabric = fabric();
    let trunk = Port { tag: vcn::VlanTag::new(5).ok(), ..A.0 };
    let mut vnic = (*fabric.vnics[&A2.0]).clone();
    fabric.detach(A2.0);
    vnic.label = "a/tag-5".into();
    fabric.attach(trunk, vnic);
    let packet = ping(Pair { from: (A2.1, POD_IP), to: PODS_ROUTER });
    assert_eq!(fabric.handle(NOW, trunk, &packet)[0].0, trunk);
    assert_eq!(dropped(&mut fabric, A.0, &packet), ("a".into(), DropReason::ForeignMac(A2.1)));
}

#[test]
fn the_own_secondary_addresses_and_blocks_are_not_foreign() {
    for source in [POD_IP, Ipv4Addr::new(10, 0, 1, 64), Ipv4Addr::new(10, 0, 1, 79)] {
        let out = fabric().handle(NOW, A2.0, &ping(Pair { from: (A2.1, source), to: PODS_ROUTER }));
        assert_eq!(out.len(), 1, "the router answers {source}");
    }
}

#[test]
fn a_primary_vnic_reaches_the_services_and_they_answer() {
    let mut fabric = fabric();
    let out = fabric.handle(NOW, A.0, &ping(Pair { from: (A.1, A_IP), to: (ROUTER.0, SERVICES_V4) }));
    let [(port, bytes)] = out.as_slice() else { panic!("one frame, not {out:?}") };
    assert_eq!((*port, EthernetFrame::new_unchecked(bytes).dst_addr().0), (SERVICES.0, SERVICES.1.0));
    let answer = ping(Pair { from: (SERVICES.1, SERVICES_V4), to: (ROUTER.0, A_IP) });
    assert_eq!(fabric.handle(NOW, SERVICES.0, &answer), [(A.0, arp_question(Pair { from: ROUTER, to: (A.1, A_IP) }))]);
    assert_eq!(fabric.handle(NOW, A.0, &frame::arp_reply(Pair { from: (A.1, A_IP), to: ROUTER })).len(), 1);
    let to_the_boot_disk = ping(Pair { from: (A.1, A_IP), to: (ROUTER.0, BOOT_DISK_V4) });
    assert_eq!(fabric.handle(NOW, A.0, &to_the_boot_disk).len(), 1);
}
