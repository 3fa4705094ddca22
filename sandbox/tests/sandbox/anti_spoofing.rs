//! What a VNIC may not send is dropped, counted, and explained: by the kernel's packets, here of one reason. src/fabric/tests has
//! the others.

use std::net::{IpAddr, Ipv4Addr};

use crate::fixture::{network, reaches, two_nodes, wait_for_drop, wait_until_reaches};
use netlink::{Address, Socket};
use sandbox::DropReason;
use vcn::Family;

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
