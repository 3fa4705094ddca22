//! A VNIC speaks for itself only.

use std::net::Ipv4Addr;

use smoltcp::wire::{Icmpv6Repr, NdiscNeighborFlags, NdiscRepr};
use vcn::{MacAddr, VlanTag};

use super::world::{
    A, A_IP, A_IP6, A2, B, B_IP, B_IP6, NOW, POD_IP, ROUTER, ROUTER6, dropped, fabric, fin, ping, ping6,
};
use crate::fabric::frame::{self, Pair};
use crate::fabric::{DropReason, Port};

#[test]
fn a_foreign_source_mac_is_dropped() {
    let frame = ping(Pair { from: (B.1, A_IP), to: (B.1, B_IP) });
    assert_eq!(dropped(&mut fabric(), A.0, &frame), ("a".into(), DropReason::ForeignMac(B.1)));
}

#[test]
fn a_foreign_source_address_is_dropped() {
    let frame = ping(Pair { from: (A.1, POD_IP), to: (B.1, B_IP) });
    assert_eq!(dropped(&mut fabric(), A.0, &frame), ("a".into(), DropReason::ForeignSource(POD_IP.into())));
    let frame = ping6(Pair { from: (A.1, B_IP6), to: (B.1, B_IP6) });
    assert_eq!(dropped(&mut fabric(), A.0, &frame).1, DropReason::ForeignSource(B_IP6.into()));
}

#[test]
fn first_dropped_frame_of_each_reason_is_described() {
    let mut fabric = fabric();
    for port in [8080, 8081] {
        let _ = fabric.handle(NOW, A.0, &fin(Pair { from: (A.1, POD_IP), to: (B.1, B_IP) }, port));
    }
    let drops: Vec<_> = fabric.drops().into_iter().map(|drop| (drop.frames, drop.first)).collect();
    let first = "EthernetII src=02-00-17-00-00-01 dst=02-00-17-00-00-02 type=IPv4; IPv4 src=10.0.1.7 dst=10.0.0.3 proto=TCP; \
                 TCP src=8080 dst=40000 fin seq=7 ack=9 win=512 len=0";
    assert_eq!(drops, [(2, Some(first.to_owned()))]);
}

#[test]
fn arp_for_another_vnics_address_is_dropped() {
    let frame = frame::arp_request(A.1, B_IP, ROUTER.1);
    assert_eq!(dropped(&mut fabric(), A.0, &frame).1, DropReason::ForeignNeighbour(B_IP.into()));
    let frame = frame::arp_reply(Pair { from: (A.1, B_IP), to: ROUTER });
    assert_eq!(dropped(&mut fabric(), A.0, &frame).1, DropReason::ForeignNeighbour(B_IP.into()));
}

#[test]
fn arp_with_foreign_sender_mac_is_dropped() {
    let mut frame = frame::arp_request(B.1, A_IP, ROUTER.1);
    frame::readdress(&mut frame, A.1, MacAddr([0xff; 6]));
    assert_eq!(dropped(&mut fabric(), A.0, &frame).1, DropReason::ForeignMac(B.1));
}

#[test]
fn a_neighbour_advertisement_for_another_vnics_address_is_dropped() {
    let frame = frame::neighbour_advertisement(Pair { from: (A.1, A_IP6), to: (ROUTER.0, ROUTER6) }, B_IP6, false);
    assert_eq!(dropped(&mut fabric(), A.0, &frame).1, DropReason::ForeignNeighbour(B_IP6.into()));
}

#[test]
fn router_advertisement_of_a_vnic_is_dropped() {
    let frame = frame::router_advertisement(A.1, A_IP6);
    assert_eq!(dropped(&mut fabric(), A.0, &frame).1, DropReason::ForeignNeighbour(A_IP6.into()));
}

#[test]
fn ndp_from_beyond_the_link_is_dropped() {
    let repr = NdiscRepr::NeighborAdvert { flags: NdiscNeighborFlags::empty(), target_addr: A_IP6, lladdr: None };
    let mut frame = frame::icmpv6(Pair { from: (A.1, A_IP6), to: (ROUTER.0, ROUTER6) }, Icmpv6Repr::Ndisc(repr));
    frame[14 + 7] = 254;
    assert!(matches!(dropped(&mut fabric(), A.0, &frame).1, DropReason::Malformed(_)));
}

#[test]
fn a_tag_that_no_vnic_has_is_dropped() {
    let tag = VlanTag::new(12).ok();
    let frame = ping(Pair { from: (A.1, A_IP), to: (B.1, B_IP) });
    let place = Port { tag, ..A.0 };
    assert_eq!(dropped(&mut fabric(), place, &frame), ("wire 1 tag 12".into(), DropReason::NoVnic(tag)));
}

#[test]
fn the_own_secondary_addresses_and_blocks_are_not_foreign() {
    for source in [POD_IP, Ipv4Addr::new(10, 0, 1, 64), Ipv4Addr::new(10, 0, 1, 79)] {
        let router = super::world::PODS_ROUTER;
        let mut fabric = fabric();
        let out = fabric.handle(NOW, A2.0, &ping(Pair { from: (A2.1, source), to: router }));
        assert_eq!(out.len(), 1, "the router answers {source}");
    }
}
