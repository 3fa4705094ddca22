//! What a VNIC may not send is dropped, counted, and explained.

use std::net::{IpAddr, Ipv4Addr};

use crate::fixture::{configure, network, reaches, socket, two_nodes, wait_for, wait_for_drop, wait_until_reaches};
use netlink::{Address, LinkChange, Socket};
use sandbox::DropReason;
use vcn::{Family, MacAddr, TableId};

const METADATA: DropReason = DropReason::MetadataFromSecondary;

const FOREIGN: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 77));

#[test]
fn a_spoofed_source_address_is_dropped_and_counted() {
    let vcn = two_nodes();
    let (a, b) = (vcn.node("node-a").unwrap(), vcn.node("node-b").unwrap());
    let (own, peer) = (a.address(Family::Ipv4).unwrap(), b.address(Family::Ipv4).unwrap());
    // And both know each other's MAC now.
    wait_until_reaches((a.netns(), own), (b.netns(), peer));

    let mut netlink = Socket::open_in(a.netns()).unwrap();
    let link = netlink.index_of(&a.vnics()[0].link).unwrap();
    netlink.add_address(&Address::new(link, network("10.0.0.77/32"))).unwrap();
    assert!(!reaches((a.netns(), FOREIGN), (b.netns(), peer)));
    assert_eq!(wait_for_drop(&vcn, "node-a/vnic-1", &DropReason::ForeignSource(FOREIGN)), 1);
}

#[test]
fn a_spoofed_arp_sender_is_dropped_and_counted() {
    let vcn = two_nodes();
    let (a, b) = (vcn.node("node-a").unwrap(), vcn.node("node-b").unwrap());
    let mut netlink = Socket::open_in(a.netns()).unwrap();
    let link = netlink.index_of(&a.vnics()[0].link).unwrap();
    netlink.add_address(&Address::new(link, network("10.0.0.77/32"))).unwrap();
    // Nothing is known of the destination yet, so ARP comes first, in the name of the packet's source.
    assert!(!reaches((a.netns(), FOREIGN), (b.netns(), b.address(Family::Ipv4).unwrap())));
    wait_for_drop(&vcn, "node-a/vnic-1", &DropReason::ForeignNeighbour(FOREIGN));
}

#[test]
fn a_changed_mac_is_cut_off() {
    let vcn = two_nodes();
    let (a, b) = (vcn.node("node-a").unwrap(), vcn.node("node-b").unwrap());
    let foreign = MacAddr([2, 0, 0, 0, 0, 0x99]);
    let mut netlink = Socket::open_in(a.netns()).unwrap();
    netlink.change_link_named(&a.vnics()[0].link, &[LinkChange::Mac(foreign)]).unwrap();
    let peer = b.address(Family::Ipv4).unwrap();
    assert!(!reaches((a.netns(), a.address(Family::Ipv4).unwrap()), (b.netns(), peer)));
    wait_for_drop(&vcn, "node-a/vnic-1", &DropReason::ForeignMac(foreign));
}

#[test]
fn metadata_through_a_secondary_vnic_is_dropped() {
    let vcn = two_nodes();
    let a = vcn.node("node-a").unwrap();
    let vnic = &a.vnics()[1];
    configure(a.netns(), vnic, &vnic.link, TableId(100));
    let client = socket(a.netns(), vnic.address.ipv4.unwrap());
    // One alone may be lost before it gets that far.
    let dropped = |drop: &sandbox::Dropped| (drop.at.as_str(), &drop.reason) == ("node-a/vnic-2", &METADATA);
    wait_for("a drop", || {
        client.send_to(b"hello", (sandbox::SERVICES_V4, 123)).unwrap();
        vcn.drops().iter().any(dropped)
    });
}
