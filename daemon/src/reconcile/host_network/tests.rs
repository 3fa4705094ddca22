//! What is reported of objects that stay.

use datapath::LinkSpec;
use vcn::{Family, VlanTag};

use super::*;

#[test]
fn spared_vlan_link_is_not_reported() {
    let kind = LinkKind::Vlan { parent: "nic1".parse().unwrap(), tag: VlanTag::new(11).unwrap() };
    let link = LinkSpec { name: "nic1.11".parse().unwrap(), kind, mac: None, mtu: None, up: false, alias: None };
    let (link, rule) = (Object::Link(link), host::to_pods(Family::Ipv4));
    assert_eq!(left_in_place(std::slice::from_ref(&link), Ownership::Other), None);
    let alone = left_in_place(std::slice::from_ref(&rule), Ownership::Other);
    assert!(alone.as_ref().is_some_and(|it| it.message.contains("; 1 object(s)")), "{alone:?}");
    assert_eq!(left_in_place(&[link, rule], Ownership::Other), alone);
}
