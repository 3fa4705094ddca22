//! What is reported of objects that stay, and of links that go.

use datapath::LinkSpec;
use vcn::{Family, VlanTag};

use super::*;
use crate::fixture::link;

#[test]
fn spared_vlan_link_is_not_reported() {
    let kind = LinkKind::Vlan { parent: "nic1".parse().unwrap(), tag: VlanTag::new(11).unwrap() };
    let link = LinkSpec { name: "nic1.11".parse().unwrap(), kind, mac: None, mtu: None, up: false, alias: None };
    let (link, rule) = (Object::Link(link), datapath::host::to_pods(Family::Ipv4));
    assert_eq!(left_in_place(std::slice::from_ref(&link), Ownership::Other), None);
    let alone = left_in_place(std::slice::from_ref(&rule), Ownership::Other);
    assert!(alone.as_ref().is_some_and(|it| it.message.contains("; 1 object(s)")), "{alone:?}");
    assert_eq!(left_in_place(&[link, rule], Ownership::Other), alone);
}

#[test]
fn link_is_lost_if_it_was_there_before() {
    let (name, other) = ("ens5".parse().unwrap(), || Link { index: 2, ..link("ens3", 0x0a) });
    let at = |name, index| Link { index, ..link(name, 0x0b) };
    for (case, before, now, expected) in [
        ("detached", vec![other(), at("ens5", 5)], vec![other()], true),
        ("replaced", vec![at("ens5", 5)], vec![other(), at("ens5", 6)], true),
        ("renamed", vec![at("ens5", 5)], vec![at("up5", 5)], false),
        ("not created yet", vec![other()], vec![other()], false),
    ] {
        assert_eq!(is_lost(&name, &before, &now), expected, "{case}");
    }
}
