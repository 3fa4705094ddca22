//! Whose the pod network is, and what waits for what.

use vcn::{CONFLIST_FILE, Family};

use crate::metadata::vnic;
use crate::node::{Node, wait_for};

fn node() -> Node {
    let node = Node::new();
    node.plug("ens5", 33);
    node.metadata.set_vnics(vec![vnic("primary", 10), vnic("pods", 33)]);
    node
}

#[test]
fn the_configuration_is_written_only_when_an_address_is_usable() {
    let node = node();
    node.publish("BACKOFF", &[]);
    let mut agent = node.agent(&[]);
    let reason = "NativePodNetwork is BACKOFF: FailedToCreatePrivateIP";
    wait_for("pools with a reason", || node.pools()["reason"] == reason, || agent.log());
    wait_for("its condition", || node.conditions() == ["NativePodNetworkPending"], || agent.log());
    wait_for("the binary", || node.path("bin/vcn-native").exists(), || agent.log());
    assert!(!node.path("net.d").join(CONFLIST_FILE).exists());
    node.publish("SUCCESS", &[("pods", 33)]);
    node.wait_ready(&mut agent);
    assert!(node.path("net.d").join(CONFLIST_FILE).exists());
    assert!(node.pools()["reason"].is_null());
}

#[test]
fn where_the_pod_network_is_not_ours_vnics_are_configured_and_pods_left_alone() {
    let node = node();
    node.publish("SUCCESS", &[("pods", 33)]);
    let mut agent = node.agent(&["--pod-network", "none"]);
    node.wait_ready(&mut agent);
    assert_eq!(node.routes(Family::Ipv4, 1000).len(), 2);
    assert!(node.pools().is_null());
    for directory in ["bin", "net.d"] {
        assert_eq!(std::fs::read_dir(node.path(directory)).unwrap().count(), 0, "{directory}");
    }
}

#[test]
fn on_a_flannel_node_the_agent_is_ready_and_touches_no_cni_file() {
    let node = node();
    let flannel = node.path("net.d/10-flannel.conflist");
    std::fs::write(&flannel, r#"{"name":"cbr0","cniVersion":"0.3.1","plugins":[{"type":"flannel"}]}"#).unwrap();
    let mut agent = node.agent(&["--node-label", "false"]);
    node.wait_ready(&mut agent);
    assert_eq!(node.routes(Family::Ipv4, 1000).len(), 2);
    assert!(node.pools().is_null());
    assert_eq!(std::fs::read_dir(node.path("net.d")).unwrap().count(), 1);
    let decided = agent.events("pod_network.decided");
    assert_eq!(decided.last().unwrap()["decided_by"], "node-label");
}

#[test]
fn what_somebody_deletes_of_the_configuration_comes_back() {
    let node = node();
    node.publish("SUCCESS", &[("pods", 33)]);
    let mut agent = node.agent(&[]);
    node.wait_ready(&mut agent);
    let conflist = node.path("net.d").join(CONFLIST_FILE);
    std::fs::remove_file(&conflist).unwrap();
    wait_for("the configuration", || conflist.exists(), || agent.log());
    std::fs::remove_file(node.path("run/pools.json")).unwrap();
    wait_for("the pools", || !node.pools().is_null(), || agent.log());
}
