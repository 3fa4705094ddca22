//! Answers of the metadata service that lack a family of a VNIC for long.

use serde_json::Value;
use vcn::Family;

use crate::follow_up::dual_stack_node;
use crate::metadata::{dual_stack, vnic};
use crate::node::{Node, wait_for};
use crate::pod::Pod;

/// The network of pods.
fn network(node: &Node) -> ([Vec<String>; 2], [Vec<String>; 2], Value) {
    let both = [Family::Ipv4, Family::Ipv6];
    (both.map(|family| node.rules(family)), both.map(|family| node.routes(family, 1000)), node.pools()["vnics"].clone())
}

#[test]
fn lacked_family_stays_while_the_native_pod_network_offers_it() {
    let node = dual_stack_node();
    let mut agent = node.agent(&[]);
    node.wait_ready(&mut agent);
    let pod = Pod::add(&node, "a");
    pod.wait_connected();
    let whole = network(&node);

    node.metadata.set_vnics(vec![vnic("primary", 10), vnic("pods", 33)]);
    // The grace is one second.
    wait_for("the report", || node.conditions() == ["VnicFamilyNotListed"], || agent.log());
    node.wait_timer_passes(&agent, 3);
    assert_eq!((network(&node), node.get("/readyz").0), (whole.clone(), 200), "{}", agent.log());
    pod.wait_connected();

    // One that starts meanwhile knows it of the one before.
    drop(agent);
    let mut agent = node.agent(&[]);
    node.wait_ready(&mut agent);
    wait_for("the condition again", || node.conditions() == ["VnicFamilyNotListed"], || agent.log());
    node.wait_timer_passes(&agent, 3);
    assert_eq!(network(&node), whole, "{}", agent.log());
    Pod::add(&node, "b").wait_connected();
    let whole = network(&node);

    node.metadata.set_vnics(vec![vnic("primary", 10), dual_stack("pods", 33)]);
    wait_for("its end", || node.conditions().is_empty(), || agent.log());
    assert_eq!(network(&node), whole, "{}", agent.log());
}
