//! What happens while a source does not answer.

use crate::metadata::vnic;
use crate::node::{Node, wait_for};

fn node_with_pods() -> Node {
    let node = Node::new();
    node.plug("ens5", 33);
    node.metadata.set_vnics(vec![vnic("primary", 10), vnic("pods", 33)]);
    node.publish("SUCCESS", &[("pods", 33)]);
    node
}

#[test]
fn with_the_metadata_service_down_at_the_start_the_agent_is_healthy_not_ready_and_recovers() {
    let node = node_with_pods();
    node.metadata.set_status(503);
    let mut agent = node.agent(&[]);
    wait_for("the reason", || node.conditions().contains(&"MetadataUnavailable".into()), || agent.log());
    assert_eq!((node.get("/healthz").0, node.get("/readyz").0), (200, 503));
    assert!(!node.path("net.d").join(vcn::CONFLIST_FILE).exists());
    node.metadata.set_status(200);
    node.wait_ready(&mut agent);
    assert_eq!(node.conditions(), [""; 0]);
}

#[test]
fn an_outage_withdraws_nothing_and_is_visible() {
    let node = node_with_pods();
    let mut agent = node.agent(&[]);
    node.wait_ready(&mut agent);
    let pools = node.pools();
    // Not transient, so that it is not retried for half a minute first.
    node.metadata.set_status(400);
    wait_for("the condition", || node.conditions() == ["MetadataUnavailable"], || agent.log());
    assert_eq!(node.get("/readyz").0, 200);
    assert_eq!(node.pools(), pools);
    let rules = node.rules(vcn::Family::Ipv4);
    node.delete_rule(vcn::Family::Ipv4, 1537);
    wait_for("the repair", || node.rules(vcn::Family::Ipv4) == rules, || agent.log());
    node.metadata.set_status(200);
    wait_for("the end of it", || node.conditions().is_empty(), || agent.log());
}

#[test]
fn a_restart_during_an_outage_leaves_what_was_published() {
    let node = node_with_pods();
    let mut agent = node.agent(&[]);
    node.wait_ready(&mut agent);
    agent.stop();
    let (pools, rules) = (node.pools(), node.rules(vcn::Family::Ipv4));
    node.metadata.set_status(400);
    std::fs::remove_file(node.npn()).unwrap();
    let agent = node.agent(&[]);
    wait_for("the reason", || node.conditions().contains(&"MetadataUnavailable".into()), || agent.log());
    assert_eq!(node.pools(), pools);
    assert_eq!(node.rules(vcn::Family::Ipv4), rules);
}

#[test]
fn a_damaged_native_pod_network_withdraws_nothing_and_is_named() {
    let node = node_with_pods();
    let mut agent = node.agent(&[]);
    node.wait_ready(&mut agent);
    let vnics = node.pools()["vnics"].clone();
    std::fs::write(node.npn(), "{half").unwrap();
    wait_for("the condition", || node.conditions() == ["NativePodNetworkUnreadable"], || agent.log());
    assert_eq!(node.get("/readyz").0, 200);
    assert_eq!(node.pools()["vnics"], vnics);
}
