//! ARP, neighbour discovery and router advertisements.

use std::net::{Ipv4Addr, Ipv6Addr};

use smoltcp::wire::{Icmpv6Repr, NdiscRepr};
use vcn::METADATA_ADDRESS;

use super::world::{A, A_IP, A_IP6, A2, B, B_IP, B_IP6, NOW, ROUTER, ROUTER6, fabric};
use crate::fabric::frame::{self, Pair};

#[test]
fn each_question_gets_its_answer() {
    let arp = |target| frame::arp_request(A.1, A_IP, target);
    let found = |mac, target| frame::arp_reply(Pair { from: (mac, target), to: (A.1, A_IP) });
    let ndp = |target| frame::neighbour_solicitation(A.1, A_IP6, target);
    let found6 = |mac, target, router| {
        frame::neighbour_advertisement(Pair { from: (mac, target), to: (A.1, A_IP6) }, target, router)
    };
    for (question, answer) in [
        (arp(ROUTER.1), found(ROUTER.0, ROUTER.1)),
        (arp(B_IP), found(B.1, B_IP)),
        (arp(METADATA_ADDRESS), found(ROUTER.0, METADATA_ADDRESS)),
        (ndp(ROUTER6), found6(ROUTER.0, ROUTER6, true)),
        (ndp(B_IP6), found6(B.1, B_IP6, false)),
    ] {
        assert_eq!(fabric().handle(NOW, A.0, &question), [(A.0, answer)]);
    }
}

#[test]
fn a_probe_for_an_own_address_gets_no_answer() {
    let own_link_local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0x17ff, 0xfe00, 1);
    for probe in [
        frame::arp_request(A.1, Ipv4Addr::UNSPECIFIED, A_IP),
        frame::neighbour_solicitation(A.1, Ipv6Addr::UNSPECIFIED, A_IP6),
        frame::neighbour_solicitation(A.1, Ipv6Addr::UNSPECIFIED, own_link_local),
    ] {
        let mut fabric = fabric();
        assert_eq!(fabric.handle(NOW, A.0, &probe), []);
        assert_eq!(fabric.drops(), []);
    }
}

#[test]
fn an_arp_probe_for_another_vnics_address_is_answered() {
    let probe = frame::arp_request(A.1, Ipv4Addr::UNSPECIFIED, B_IP);
    assert_eq!(fabric().handle(NOW, A.0, &probe).len(), 1);
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
