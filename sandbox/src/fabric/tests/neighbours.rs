//! ARP, neighbour discovery and router advertisements.

use std::net::{Ipv4Addr, Ipv6Addr};

use smoltcp::wire::{Icmpv6Repr, NdiscRepr};

use super::world::{A, A_IP, A_IP6, A2, B, B_IP, B_IP6, NOW, POD_IP, ROUTER, ROUTER6, dropped, fabric};
use crate::fabric::DropReason;
use crate::fabric::frame::{self, Pair};

#[test]
fn arp_finds_the_router() {
    let out = fabric().handle(NOW, A.0, &frame::arp_request(A.1, A_IP, ROUTER.1));
    assert_eq!(out, [(A.0, frame::arp_reply(Pair { from: ROUTER, to: (A.1, A_IP) }))]);
}

#[test]
fn arp_resolves_vnic_of_same_subnet_to_its_own_mac() {
    let out = fabric().handle(NOW, A.0, &frame::arp_request(A.1, A_IP, B_IP));
    assert_eq!(out, [(A.0, frame::arp_reply(Pair { from: (B.1, B_IP), to: (A.1, A_IP) }))]);
}

#[test]
fn arp_does_not_resolve_address_of_another_subnet() {
    let frame = frame::arp_request(A.1, A_IP, POD_IP);
    assert_eq!(dropped(&mut fabric(), A.0, &frame).1, DropReason::NoHolder(POD_IP.into()));
}

#[test]
fn arp_finds_link_local_addresses_on_primary_vnics_only() {
    let metadata = vcn::METADATA_ADDRESS;
    let out = fabric().handle(NOW, A.0, &frame::arp_request(A.1, A_IP, metadata));
    assert_eq!(out, [(A.0, frame::arp_reply(Pair { from: (ROUTER.0, metadata), to: (A.1, A_IP) }))]);
    let frame = frame::arp_request(A2.1, POD_IP, metadata);
    assert_eq!(dropped(&mut fabric(), A2.0, &frame), ("a2".into(), DropReason::MetadataFromSecondary));
}

#[test]
fn an_arp_probe_for_the_own_address_gets_no_answer() {
    let mut fabric = fabric();
    let probe = frame::arp_request(A.1, Ipv4Addr::UNSPECIFIED, A_IP);
    assert_eq!(fabric.handle(NOW, A.0, &probe), []);
    assert_eq!(fabric.drops(), []);
}

#[test]
fn an_arp_probe_for_another_vnics_address_is_answered() {
    let probe = frame::arp_request(A.1, Ipv4Addr::UNSPECIFIED, B_IP);
    assert_eq!(fabric().handle(NOW, A.0, &probe).len(), 1);
}

#[test]
fn ndp_finds_the_router_and_vnics_of_the_same_subnet() {
    for (target, mac, router) in [(ROUTER6, ROUTER.0, true), (B_IP6, B.1, false)] {
        let out = fabric().handle(NOW, A.0, &frame::neighbour_solicitation(A.1, A_IP6, target));
        let answer = frame::neighbour_advertisement(Pair { from: (mac, target), to: (A.1, A_IP6) }, target, router);
        assert_eq!(out, [(A.0, answer)]);
    }
}

#[test]
fn duplicate_address_detection_of_an_own_address_gets_no_answer() {
    let own_link_local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0x17ff, 0xfe00, 1);
    for target in [A_IP6, own_link_local] {
        let mut fabric = fabric();
        let frame = frame::neighbour_solicitation(A.1, Ipv6Addr::UNSPECIFIED, target);
        assert_eq!(fabric.handle(NOW, A.0, &frame), []);
        assert_eq!(fabric.drops(), []);
    }
}

#[test]
fn duplicate_address_detection_of_a_foreign_address_is_reported() {
    for target in [B_IP6, ROUTER6] {
        let frame = frame::neighbour_solicitation(A.1, Ipv6Addr::UNSPECIFIED, target);
        assert_eq!(dropped(&mut fabric(), A.0, &frame).1, DropReason::ForeignNeighbour(target.into()));
    }
}

#[test]
fn router_solicitation_is_answered_only_on_primary_ipv6_vnic() {
    let all_routers = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
    let solicit = |mac| {
        let pair = Pair { from: (mac, Ipv6Addr::UNSPECIFIED), to: (ROUTER.0, all_routers) };
        frame::icmpv6(pair, Icmpv6Repr::Ndisc(NdiscRepr::RouterSolicit { lladdr: None }))
    };
    let out = fabric().handle(NOW, A.0, &solicit(A.1));
    assert_eq!(out, [(A.0, frame::router_advertisement(ROUTER.0, ROUTER6))]);
    assert_eq!(fabric().handle(NOW, A2.0, &solicit(A2.1)), []);
}

#[test]
fn routers_are_announced_to_primary_vnics_with_ipv6() {
    let ports: Vec<_> = fabric().advertisements().into_iter().map(|(port, _)| port).collect();
    assert_eq!(ports, [A.0, B.0]);
}
