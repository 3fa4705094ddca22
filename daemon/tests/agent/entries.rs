//! Entries of the metadata service's list that cannot be used: the failure of one VNIC affects no other.

use serde_json::Value;
use vcn::Family;

use crate::follow_up::dual_stack_node;
use crate::metadata::{dual_stack, vnic};
use crate::node::wait_for;
use crate::pod::Pod;

fn without(mut entry: Value, field: &str) -> Value {
    entry.as_object_mut().unwrap().remove(field).unwrap();
    entry
}

#[test]
fn incomplete_entry_affects_neither_its_vnic_nor_other_vnics() {
    let node = dual_stack_node();
    let primary = || vnic("primary", 10);
    // In an OCI VLAN a VNIC has no addresses.
    let mut in_vlan = without(without(vnic("vlan", 36), "virtualRouterIp"), "subnetCidrBlock");
    in_vlan["privateIp"] = "<null>".into();
    let list = [vnic("new", 35), vnic("later", 37), dual_stack("pods", 33)];
    let [new, later, pods] = list;
    let new = without(new, "virtualRouterIp");
    node.plug("ens7", 36);
    node.metadata.set_vnics(vec![without(primary(), "subnetCidrBlock"), new, without(later, "macAddr"), pods, in_vlan]);
    let agent = node.ready_agent(&[]);
    assert_eq!(node.conditions(), ["VnicUnreadable"; 3], "one for each VNIC");
    let (_, said) = node.run(&["status"]);
    for (vnic, reason) in [
        ("new", "IPv4: [1].virtualRouterIp is missing; it is not configured"),
        ("later", "[2].macAddr is missing; it is not configured"),
        ("vlan", "the metadata service lists no address of it"),
    ] {
        let line = |line: &&str| line.contains(&format!("VnicUnreadable (ocid1.vnic.oc1.iad.{vnic})"));
        assert!(said.lines().find(line).is_some_and(|line| line.contains(reason)), "{vnic}: {said}");
    }
    let row = said.lines().find(|line| line.starts_with("ocid1.vnic.oc1.iad.vlan")).unwrap();
    assert!(row.ends_with("VnicUnreadable") && !row.contains("100"), "neither a table nor in sync: {row}");
    assert_eq!(node.addresses("ens7"), [""; 0]);
    node.sh("ip link del ens7");
    let pod = Pod::add(&node, "a");
    pod.wait_connected();

    // Now the VNIC of the pods, while another is plugged in. That the pods' network stays is in `remembered.rs`.
    node.plug("ens6", 34);
    node.metadata.set_vnics(vec![primary(), without(dual_stack("pods", 33), "subnetCidrBlock"), vnic("late", 34)]);
    let served = || node.routes(Family::Ipv4, 1001).len() == 2;
    wait_for("the VNIC that came late", served, || agent.log());
    let is_reported = || node.get("/readyz").1.contains("IPv4: [1].subnetCidrBlock is missing; the rest of it is used");
    wait_for("the report", is_reported, || agent.log());
    pod.wait_connected();

    node.metadata.set_vnics(vec![primary(), dual_stack("pods", 33), vnic("late", 34)]);
    node.wait_conditions(&agent, &[]);
}
