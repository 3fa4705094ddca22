//! Bare metal: several VNICs on one physical port, distinguished by their tags.

use crate::fixture::{configure, reaches, two_nodes_of, wait_for, wait_for_drop, wait_until_reaches};
use netlink::{LinkKind, NewLink, Socket};
use sandbox::{Capabilities, DropReason, NodeSpec, Vcn, VnicSpec};
use vcn::{Family, IfName, TableId, VlanTag};

fn two_bare_metal_nodes() -> Vcn {
    two_nodes_of(|name| NodeSpec::bare_metal(name, "nodes"))
}

#[test]
#[ignore = "needs 802.1Q: run by tests/uml/run"]
fn first_vnic_of_a_port_is_untagged_and_later_tagged() {
    let vcn = two_bare_metal_nodes();
    vcn.attach_vnic("node-a", &VnicSpec::new("pods")).unwrap();
    vcn.attach_vnic("node-a", &VnicSpec::new("pods").nic_index(1)).unwrap();
    let a = vcn.node("node-a").unwrap();
    let seen: Vec<_> = a.vnics().iter().map(|vnic| (vnic.nic_index, vnic.vlan_tag)).collect();
    assert_eq!(seen, [(0, 0), (0, 1), (0, 2), (1, 0)]);
    let mut socket = Socket::open_in(a.netns()).unwrap();
    let mut ports: Vec<_> = socket.links().unwrap().into_iter().filter(|link| !link.loopback).collect();
    ports.sort_by_key(|port| port.index);
    let names: Vec<_> = ports.iter().map(|port| port.name.as_str()).collect();
    assert_eq!(names, ["ens300f0", "ens300f1"], "attaching made no link");
    let macs: Vec<_> = ports.iter().map(|port| port.mac).collect();
    assert_eq!(macs, [Some(a.vnics()[0].mac), Some(a.vnics()[3].mac)], "a port's MAC is its untagged VNIC's");
}

#[test]
#[ignore = "needs 802.1Q: run by tests/uml/run"]
fn tagged_vnic_replies_once_its_vlan_link_exists() {
    let vcn = two_bare_metal_nodes();
    let (a, b) = (vcn.node("node-a").unwrap(), vcn.node("node-b").unwrap());
    let own = a.address(Family::Ipv4).unwrap();
    // Untagged.
    wait_until_reaches((a.netns(), own), (b.netns(), b.address(Family::Ipv4).unwrap()));

    let vnic = &b.vnics()[1];
    let link: IfName = "vnic1".parse().unwrap();
    let mut socket = Socket::open_in(b.netns()).unwrap();
    let parent = socket.index_of(&vnic.link).unwrap();
    let tag = VlanTag::new(vnic.vlan_tag).unwrap();
    let mut vlan = NewLink::new(link.clone(), LinkKind::Vlan { parent, tag });
    vlan.mac = Some(vnic.mac);
    socket.add_link(&vlan).unwrap();
    configure(b.netns(), vnic, &link, TableId(100));
    for family in Family::ALL {
        let (own, target) = (a.address(family).unwrap(), *vnic.address.of(family).unwrap());
        wait_for("the tagged VNIC answers", || reaches((a.netns(), own), (b.netns(), target)));
    }

    let wrong = VlanTag::new(77).unwrap();
    let mut vlan = NewLink::new("wrong".parse().unwrap(), LinkKind::Vlan { parent, tag: wrong });
    vlan.mac = Some(vnic.mac);
    vlan.up = true;
    socket.add_link(&vlan).unwrap();
    wait_for("a tag that no VNIC has is refused", || {
        vcn.drops().iter().any(|drop| drop.reason == DropReason::NoVnic(Some(wrong)))
    });

    vcn.detach_vnic("node-b", &vnic.id).unwrap();
    let target = vnic.address.ipv4.unwrap();
    assert!(!reaches((a.netns(), own), (b.netns(), target)), "the port carries the tag no more");
    wait_for_drop(&vcn, "node-a/vnic-1", &DropReason::NoHolder(target));
}

#[test]
fn a_kernel_without_vlans_is_reported() {
    let started = Vcn::builder()
        .subnet(sandbox::SubnetSpec::new("nodes", crate::fixture::network("10.0.0.0/24")))
        .node(NodeSpec::bare_metal("metal", "nodes"))
        .start();
    match (Capabilities::probe().unwrap().vlan, started) {
        (true, Ok(_)) => {}
        (false, Err(error)) => {
            assert_eq!(error.to_string(), "metal is a bare-metal node, which needs 802.1Q (VLAN) in this kernel");
        }
        (vlan, started) => panic!("VLANs: {vlan}, and: {started:?}"),
    }
}
