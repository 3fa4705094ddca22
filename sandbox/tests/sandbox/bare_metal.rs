//! Bare metal: several VNICs on one physical port, distinguished by their tags.

use crate::fixture::two_nodes_of;
use netlink::Socket;
use sandbox::{Capabilities, NodeSpec, Vcn, VnicSpec};

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
fn a_kernel_without_vlans_is_reported() {
    let started = Vcn::builder()
        .subnet(sandbox::SubnetSpec::new("nodes", &["10.0.0.0/24"]))
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
