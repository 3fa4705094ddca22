//! 169.254.169.254.

use std::net::Ipv4Addr;

use smoltcp::wire::EthernetFrame;

use super::world::{
    A, A_IP, A2, NOW, POD_IP, PODS_ROUTER, ROUTER, SERVICES, arp_answer, arp_question, dropped, fabric, ping,
};
use crate::fabric::frame::{self, Pair};
use crate::fabric::{BOOT_DISK_V4, DropReason, SERVICES_V4};

#[test]
fn a_primary_vnic_reaches_the_services_and_they_answer() {
    let mut fabric = fabric();
    let out = fabric.handle(NOW, A.0, &ping(Pair { from: (A.1, A_IP), to: (ROUTER.0, SERVICES_V4) }));
    let [(port, bytes)] = out.as_slice() else { panic!("one frame, not {out:?}") };
    assert_eq!((*port, EthernetFrame::new_unchecked(bytes).dst_addr().0), (SERVICES.0, SERVICES.1.0));
    let answer = ping(Pair { from: (SERVICES.1, SERVICES_V4), to: (ROUTER.0, A_IP) });
    assert_eq!(fabric.handle(NOW, SERVICES.0, &answer), [(A.0, arp_question(ROUTER, (A.1, A_IP)))]);
    assert_eq!(fabric.handle(NOW, A.0, &arp_answer(A.1, A_IP, ROUTER)).len(), 1);
}

#[test]
fn a_secondary_vnic_does_not() {
    let frame = ping(Pair { from: (A2.1, POD_IP), to: (PODS_ROUTER.0, SERVICES_V4) });
    assert_eq!(dropped(&mut fabric(), A2.0, &frame), ("a2".into(), DropReason::MetadataFromSecondary));
}

#[test]
fn the_boot_disk_is_the_primary_vnics_too() {
    let from = |mac, address, router| ping(Pair { from: (mac, address), to: (router, BOOT_DISK_V4) });
    assert_eq!(fabric().handle(NOW, A.0, &from(A.1, A_IP, ROUTER.0)).len(), 1);
    let secondary = from(A2.1, POD_IP, PODS_ROUTER.0);
    assert_eq!(dropped(&mut fabric(), A2.0, &secondary), ("a2".into(), DropReason::MetadataFromSecondary));
}

#[test]
fn other_link_local_addresses_have_no_service() {
    let other = Ipv4Addr::new(169, 254, 0, 3);
    let frame = ping(Pair { from: (A.1, A_IP), to: (ROUTER.0, other) });
    assert_eq!(dropped(&mut fabric(), A.0, &frame).1, DropReason::NoSuchService(other.into()));
}

#[test]
fn the_services_reach_all_vnics_through_one_router() {
    let request = frame::arp_request(SERVICES.1, SERVICES_V4, A_IP);
    assert_eq!(fabric().handle(NOW, SERVICES.0, &request).len(), 1);
}

#[test]
fn the_services_cannot_reach_a_pod_address() {
    let frame = ping(Pair { from: (SERVICES.1, SERVICES_V4), to: (ROUTER.0, POD_IP) });
    assert_eq!(dropped(&mut fabric(), SERVICES.0, &frame).1, DropReason::NoHolder(POD_IP.into()));
}
