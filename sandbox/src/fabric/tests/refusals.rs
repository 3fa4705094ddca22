//! A VNIC speaks for itself only, and to addresses that the VCN has: what is refused, for which reason.

use std::net::{Ipv4Addr, Ipv6Addr};

use smoltcp::wire::{EthernetFrame, Icmpv6Repr, Ipv4Packet, NdiscNeighborFlags, NdiscRepr};
use vcn::{METADATA_ADDRESS, MacAddr, VlanTag};

use super::world::{
    A, A_IP, A_IP6, A2, B, B_IP, B_IP6, NOW, POD_IP, PODS_ROUTER, ROUTER, ROUTER6, SERVICES, dropped, fabric, fin,
    ping, ping6,
};
use crate::fabric::frame::{self, Pair};
use crate::fabric::{BOOT_DISK_V4, DropReason, Port, SERVICES_V4};

#[test]
fn each_frame_is_refused_for_its_reason() {
    use DropReason::{
        ForeignMac, ForeignNeighbour, ForeignSource, HopLimit, Malformed, MetadataFromSecondary, NoHolder,
        NoSuchService, NoVnic, TooLong, WrongMac,
    };
    let tag = VlanTag::new(12).ok();
    let (unassigned, no_service) = (Ipv4Addr::new(8, 8, 8, 8), Ipv4Addr::new(169, 254, 0, 3));
    let to_b = |mac, from| ping(Pair { from: (mac, from), to: (B.1, B_IP) });
    let to_b6 = |from| ping6(Pair { from: (A.1, from), to: (B.1, B_IP6) });
    let routed = |to| ping(Pair { from: (A.1, A_IP), to: (ROUTER.0, to) });
    let of_pod = |to| ping(Pair { from: (A2.1, POD_IP), to: (PODS_ROUTER.0, to) });
    let of_services = |to| ping(Pair { from: (SERVICES.1, SERVICES_V4), to: (ROUTER.0, to) });
    let to_router6 = Pair { from: (A.1, A_IP6), to: (ROUTER.0, ROUTER6) };
    let detection = |of| frame::neighbour_solicitation(A.1, Ipv6Addr::UNSPECIFIED, of);
    let mut with_foreign_sender = frame::arp_request(B.1, A_IP, ROUTER.1);
    frame::readdress(&mut with_foreign_sender, A.1, MacAddr([0xff; 6]));
    let repr = NdiscRepr::NeighborAdvert { flags: NdiscNeighborFlags::empty(), target_addr: A_IP6, lladdr: None };
    let mut from_beyond_the_link = frame::icmpv6(to_router6, Icmpv6Repr::Ndisc(repr));
    from_beyond_the_link[14 + 7] = 254;
    let mut too_long = to_b(A.1, A_IP);
    too_long.resize(14 + 9001, 0);
    for (place, frame, reason) in [
        // Its addresses.
        (A.0, to_b(B.1, A_IP), ForeignMac(B.1)),
        (A.0, to_b(A.1, POD_IP), ForeignSource(POD_IP.into())),
        (A.0, to_b6(B_IP6), ForeignSource(B_IP6.into())),
        (Port { tag, ..A.0 }, to_b(A.1, A_IP), NoVnic(tag)),
        // What it says of addresses.
        (A.0, frame::arp_request(A.1, B_IP, ROUTER.1), ForeignNeighbour(B_IP.into())),
        (A.0, frame::arp_reply(Pair { from: (A.1, B_IP), to: ROUTER }), ForeignNeighbour(B_IP.into())),
        (A.0, with_foreign_sender, ForeignMac(B.1)),
        (A.0, frame::neighbour_advertisement(to_router6, B_IP6, false), ForeignNeighbour(B_IP6.into())),
        (A.0, frame::router_advertisement(A.1, A_IP6), ForeignNeighbour(A_IP6.into())),
        (A.0, from_beyond_the_link, Malformed("NDP message (hop limit is not 255)")),
        (A.0, detection(B_IP6), ForeignNeighbour(B_IP6.into())),
        (A.0, detection(ROUTER6), ForeignNeighbour(ROUTER6.into())),
        // What it resolves.
        (A.0, frame::arp_request(A.1, A_IP, POD_IP), NoHolder(POD_IP.into())),
        (A2.0, frame::arp_request(A2.1, POD_IP, METADATA_ADDRESS), MetadataFromSecondary),
        // Where it sends to.
        (B.0, ping(Pair { from: (B.1, B_IP), to: (A2.1, POD_IP) }), WrongMac(A2.1)),
        (A.0, routed(unassigned), NoHolder(unassigned.into())),
        (A.0, too_long, TooLong(9001)),
        (A.0, with_last_hop(routed(POD_IP)), HopLimit(POD_IP.into())),
        (A2.0, of_pod(SERVICES_V4), MetadataFromSecondary),
        (A2.0, of_pod(BOOT_DISK_V4), MetadataFromSecondary),
        (A.0, routed(no_service), NoSuchService(no_service.into())),
        (SERVICES.0, of_services(POD_IP), NoHolder(POD_IP.into())),
    ] {
        assert_eq!(dropped(&mut fabric(), place, &frame).1, reason);
    }
}

fn with_last_hop(mut frame: Vec<u8>) -> Vec<u8> {
    let mut outer = EthernetFrame::new_unchecked(frame.as_mut_slice());
    let mut packet = Ipv4Packet::new_unchecked(outer.payload_mut());
    packet.set_hop_limit(1);
    packet.fill_checksum();
    frame
}

#[test]
fn first_dropped_frame_of_each_reason_is_described() {
    let mut fabric = fabric();
    for port in [8080, 8081] {
        let _ = fabric.handle(NOW, A.0, &fin(Pair { from: (A.1, POD_IP), to: (B.1, B_IP) }, port));
    }
    let drops: Vec<_> = fabric.drops().into_iter().map(|drop| (drop.at, drop.frames, drop.first)).collect();
    let first = "EthernetII src=02-00-17-00-00-01 dst=02-00-17-00-00-02 type=IPv4; IPv4 src=10.0.1.7 dst=10.0.0.3 proto=TCP; \
                 TCP src=8080 dst=40000 fin seq=7 ack=9 win=512 len=0";
    assert_eq!(drops, [("a".to_owned(), 2, Some(first.to_owned()))]);
}
