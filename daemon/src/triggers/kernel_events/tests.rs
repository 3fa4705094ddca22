//! Which events concern the host.

use netlink::{Address, Route, Rule};
use vcn::{Family, TableId};

use super::*;
use crate::fixture::link;

fn route(table: u32) -> Event {
    Event::Route(Change::Gone, Route::new("10.0.0.0/8".parse().unwrap(), 3, TableId(table), PROTOCOL))
}

fn rule(priority: vcn::Priority, protocol: u8) -> Event {
    Event::Rule(Change::Gone, Rule::new(Family::Ipv4, priority, TableId(1000), protocol))
}

fn address(address: &str) -> Event {
    Event::Address(Change::Present, Address::new(3, address.parse().unwrap()))
}

#[test]
fn events_of_host_objects_concern_the_host() {
    for event in [
        Event::Link(Change::Present, link("ens5", 5)),
        // Of another program, not of a pod.
        Event::Link(Change::Gone, link("vcnet0", 6)),
        Event::Link(Change::Gone, link("vcn0123456789AB", 6)),
        address("10.0.33.7/32"),
        address("2603:c020::7/128"),
        route(1000),
        // Of another program that uses the pods' table.
        Event::Route(Change::Present, Route::new("0.0.0.0/0".parse().unwrap(), 3, PODS_TABLE, 4)),
        rule(RulePriorities::FROM_VNIC, PROTOCOL),
        rule(RulePriorities::METADATA, PROTOCOL),
        rule(RulePriorities::TO_PODS, PROTOCOL),
        // Of another program.
        rule(RulePriorities::FROM_POD, 3),
        Event::Setting,
        Event::Overrun,
    ] {
        assert!(concerns_host(&event, &PodLinks::default()), "{event:?}");
    }
}

#[test]
fn lost_link_local_address_of_a_vnic_concerns_the_host() {
    let pods = PodLinks::among(&[link("ens5", 5), link("vcn0123456789ab", 7)]);
    let event =
        |change, index| Event::Address(change, Address::new(index, "fe80::200:17ff:fe00:5/64".parse().unwrap()));
    let concerns = |change| [5, 6, 7].map(|index| concerns_host(&event(change, index), &pods));
    assert_eq!(concerns(Change::Gone), [true, true, false], "one of a pod is lost with the pod");
    assert_eq!(concerns(Change::Present), [false; 3]);
}

#[test]
fn only_device_may_be_a_vnic() {
    let of = |kind: &str, last| Link { kind: Some(kind.into()), ..link("ens5", last) };
    let pods = Link { mac: Some(vcn::MacAddr([0x0a, 0x58, 0x17, 0, 0, 5])), ..of("veth", 5) };
    let links = [link("ens5", 5), of("veth", 5), pods, of("bridge", 5), of("vxlan", 5), of("vlan", 5), of("tun", 5)];
    assert_eq!(links.map(|link| may_be_vnic(&link)), [true, true, false, false, false, false, false]);
}

#[test]
fn events_of_pods_do_not_concern_the_host() {
    for event in [
        Event::Link(Change::Present, link("vcn0123456789ab", 5)),
        address("fe80::1/64"),
        route(254),
        Event::Route(Change::Present, Route::new("10.0.33.9/32".parse().unwrap(), 3, PODS_TABLE, PROTOCOL)),
        rule(RulePriorities::FROM_POD, PROTOCOL),
    ] {
        assert!(!concerns_host(&event, &PodLinks::default()), "{event:?}");
    }
}
