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
    node.metadata.set_vnics(vec![primary(), without(vnic("new", 35), "virtualRouterIp"), dual_stack("pods", 33)]);
    let agent = node.ready_agent(&[]);
    assert_eq!(node.conditions(), ["VnicUnreadable"]);
    let (_, said) = node.run(&["status"]);
    assert!(said.contains("[1].virtualRouterIp is missing; it is not configured"), "{said}");
    let pod = Pod::add(&node, "a");
    pod.wait_connected();

    // Now the VNIC of the pods, while another is plugged in. That the pods' network stays is in `remembered.rs`.
    node.plug("ens6", 34);
    node.metadata.set_vnics(vec![primary(), without(dual_stack("pods", 33), "subnetCidrBlock"), vnic("late", 34)]);
    let served = || node.routes(Family::Ipv4, 1001).len() == 2;
    wait_for("the VNIC that came late", served, || agent.log());
    let told =
        || node.get("/readyz").1.contains("[1].subnetCidrBlock is missing; the agent uses what was known of it before");
    wait_for("the report", told, || agent.log());
    pod.wait_connected();

    node.metadata.set_vnics(vec![primary(), dual_stack("pods", 33), vnic("late", 34)]);
    node.wait_conditions(&agent, &[]);
}
