//! What an agent knows of VNICs that it never saw listed: the one before it did.

use serde_json::Value;
use vcn::Family;

use crate::follow_up::dual_stack_node;
use crate::metadata::{dual_stack, vnic};
use crate::node::{Node, wait_for};
use crate::pod::Pod;

/// The network of pods and of the host.
fn network(node: &Node) -> (Vec<String>, [Vec<String>; 2], Value) {
    let routes = [1000, 1001].map(|table| node.routes(Family::Ipv4, table));
    (node.rules(Family::Ipv4), routes, node.pools()["vnics"].clone())
}

#[test]
fn agent_started_with_incomplete_list_serves_present_vnics() {
    let node = dual_stack_node();
    node.plug("ens6", 34);
    // The second is only the host's: no NativePodNetwork names it.
    node.metadata.set_vnics(vec![vnic("primary", 10), dual_stack("pods", 33), vnic("storage", 34)]);
    let mut agent = node.agent(&[]);
    node.wait_ready(&mut agent);
    let pod = Pod::add(&node, "a");
    pod.wait_connected();
    let before = network(&node);
    assert_eq!(before.1.clone().map(|routes| routes.len()), [2, 2]);
    drop(agent);

    node.metadata.set_vnics(vec![vnic("primary", 10)]);
    let mut agent = node.agent(&[]);
    node.wait_ready(&mut agent);
    wait_for("the reason", || node.conditions() == ["VnicNotListed"; 2], || agent.log());
    let asked = node.metadata.asked();
    // The grace is one second.
    wait_for("several more answers", || node.metadata.asked() >= asked + 4, || agent.log());
    assert_eq!(network(&node), before, "{}", agent.log());
    pod.wait_connected();
    Pod::add(&node, "b").wait_connected();

    // One that went meanwhile is not remembered.
    drop(agent);
    node.on(|socket| {
        let index = socket.index_of(&"ens6".parse().unwrap()).unwrap();
        socket.delete_link(index).unwrap();
    });
    let mut agent = node.agent(&[]);
    node.wait_ready(&mut agent);
    let gone = || !node.rules(Family::Ipv4).iter().any(|rule| rule.ends_with("1001"));
    wait_for("what is left of it to go", gone, || agent.log());
    pod.wait_connected();
}

#[test]
fn unwritable_copy_is_reported_once_and_written_when_possible() {
    let node = dual_stack_node();
    let copy = node.path("lib/vnics-seen.json");
    std::fs::create_dir(&copy).unwrap();
    let mut agent = node.agent(&[]);
    node.wait_ready(&mut agent);
    let told = || node.get("/readyz").1.contains("writing /var/lib/vcn-native/vnics-seen.json: ");
    wait_for("the report", told, || agent.log());
    assert_eq!(node.conditions(), ["StateFailed"]);
    let asked = node.metadata.asked();
    wait_for("several more answers", || node.metadata.asked() >= asked + 4, || agent.log());
    std::fs::remove_dir(&copy).unwrap();
    wait_for("the copy", || copy.is_file() && node.conditions().is_empty(), || agent.log());
    let raised = agent.events("condition.raised");
    let of_it = |line: &&Value| line["subject"] == "instance and VNICs copy";
    assert_eq!(raised.iter().filter(of_it).count(), 1, "{raised:#?}");
}
