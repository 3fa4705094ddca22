//! VNICs come and go while a node runs.

use crate::fixture::{configure, network, reaches, two_nodes, wait_for};
use netlink::Socket;
use sandbox::{Error, NodeSpec, NpnShape, Secondary, SubnetSpec, Vcn, VnicSpec};
use serde_json::Value;
use vcn::{Family, TableId};

fn links(vcn: &Vcn, node: &str) -> Vec<String> {
    let mut socket = Socket::open_in(vcn.node(node).unwrap().netns()).unwrap();
    socket.links().unwrap().into_iter().map(|link| link.name.to_string()).collect()
}

#[test]
fn a_plugged_in_vnic_is_a_new_unconfigured_link() {
    let vcn = two_nodes();
    assert_eq!(links(&vcn, "node-a"), ["lo", "ens3", "ens5"]);
    let vnic = vcn.attach_vnic("node-a", &VnicSpec::for_pods("pods", 31)).unwrap();
    assert_eq!(links(&vcn, "node-a"), ["lo", "ens3", "ens5", "ens6"]);
    let a = vcn.node("node-a").unwrap();
    let mut socket = Socket::open_in(a.netns()).unwrap();
    let link = socket.link(&vnic.link).unwrap();
    assert_eq!((link.mac, link.up), (Some(vnic.mac), false));
    assert_eq!(socket.addresses(Some(link.index)).unwrap(), []);

    configure(a.netns(), &vnic, &vnic.link, TableId(101));
    let b = vcn.node("node-b").unwrap();
    let (own, peer) = (vnic.address.ipv4.unwrap(), b.address(Family::Ipv4).unwrap());
    wait_for("it carries packets", || reaches((a.netns(), own), (b.netns(), peer)));
}

#[test]
fn unplugged_vnic_removes_its_link_even_from_a_pod() {
    let vcn = two_nodes();
    let a = vcn.node("node-a").unwrap();
    let pod = a.add_pod("pod-1").unwrap();
    let vnic = a.vnics()[1].clone();
    let mut socket = Socket::open_in(a.netns()).unwrap();
    let index = socket.index_of(&vnic.link).unwrap();
    socket.change_link(index, &[netlink::LinkChange::Netns(pod.netns())]).unwrap();
    let mut in_pod = Socket::open_in(pod.netns()).unwrap();
    assert_eq!(in_pod.links().unwrap().len(), 2);

    vcn.detach_vnic("node-a", &vnic.id).unwrap();
    assert_eq!(in_pod.links().unwrap().len(), 1, "the loopback link");
    assert_eq!(a.vnics().len(), 1, "the metadata service forgot it");
    assert!(matches!(vcn.detach_vnic("node-a", &vnic.id), Err(Error::NoVnic { .. })));
}

#[test]
fn names_and_addresses_recycle_and_identities_do_not() {
    let vcn = two_nodes();
    let first = vcn.attach_vnic("node-a", &VnicSpec::new("pods")).unwrap();
    vcn.detach_vnic("node-a", &first.id).unwrap();
    let second = vcn.attach_vnic("node-a", &VnicSpec::new("pods")).unwrap();
    assert_eq!((&first.link, &first.address), (&second.link, &second.address));
    assert!(first.id != second.id && first.mac != second.mac);
}

#[test]
fn primary_vnic_cannot_be_detached_and_shape_limits_secondary_vnics() {
    let vcn = Vcn::builder()
        .subnet(SubnetSpec::new("nodes", network("10.0.0.0/24")))
        .node(NodeSpec::virtual_machine("small", "nodes").shape("VM.Standard.E5.Flex", 2))
        .start()
        .unwrap();
    let primary = vcn.node("small").unwrap().vnics()[0].id.clone();
    assert!(matches!(vcn.detach_vnic("small", &primary), Err(Error::Invalid(_))));
    vcn.attach_vnic("small", &VnicSpec::new("nodes")).unwrap();
    let refused = vcn.attach_vnic("small", &VnicSpec::new("nodes"));
    assert!(matches!(refused, Err(Error::VnicLimit { limit: 2, .. })), "{refused:?}");
}

#[test]
fn native_pod_network_has_both_shapes() {
    let vcn = two_nodes();
    let a = vcn.node("node-a").unwrap();
    let legacy = vcn.native_pod_network("node-a", NpnShape::Legacy).unwrap();
    let vnic = &legacy["status"]["vnics"][0];
    assert_eq!(vnic["macAddress"], a.vnics()[1].mac.to_string());
    assert_eq!((&vnic["routerIp"], &vnic["subnetCidr"]), (&Value::from("10.0.32.1"), &Value::from("10.0.32.0/24")));
    assert_eq!((&vnic["hostAddress"], vnic["addresses"].as_array().unwrap().len()), (&Value::from("10.0.32.3"), 7));
    assert_eq!(legacy["metadata"]["name"], a.id().unique_id());
    assert_eq!(legacy["spec"].get("ipFamilies"), None);

    let plural = vcn.native_pod_network("node-a", NpnShape::PerFamily).unwrap();
    let vnic = &plural["status"]["vnics"][0];
    assert_eq!(vnic["podAddresses"][0], serde_json::json!({ "v4": "10.0.32.4", "v6": "2603:c020:0:2::4" }));
    assert_eq!(plural["spec"]["ipFamilies"], serde_json::json!(["IPv4", "IPv6"]));
}

#[test]
fn a_vnic_may_hold_a_block_of_addresses() {
    let vcn = two_nodes();
    let spec = VnicSpec::new("pods").secondary(Secondary::Block { bits: 4 });
    let vnic = vcn.attach_vnic("node-a", &spec).unwrap();
    assert_eq!(vnic.blocks.ipv4, Some(network("10.0.32.32/28")));
    let npn = vcn.native_pod_network("node-a", NpnShape::Legacy).unwrap();
    let entry = &npn["status"]["vnics"][1];
    assert_eq!(entry["addresses"].as_array().unwrap().len(), 16);
    assert_eq!(entry["hostAddress"], vnic.address.ipv4.unwrap().to_string());
}
