//! A VNIC's own IPv6 address among those of its pods: the metadata service lists them all, in whatever order.

use serde_json::json;
use vcn::Family;

use crate::follow_up::dual_stack_node;
use crate::metadata::{dual_stack, vnic};
use crate::node::{Node, native_pod_network, wait_for};
use crate::pod::Pod;

/// The address of the host's, and one that is for pods.
const OWN: &str = "2603:c020:0:33::7";
const FOR_PODS: &str = "2603:c020:0:33::22";

/// From now on the VNIC has these.
fn list(node: &Node, addresses: &[&str]) {
    let mut pods = dual_stack("pods", 33);
    pods["ipv6Addresses"] = json!(addresses);
    node.metadata.set_vnics(vec![vnic("primary", 10), pods]);
}

fn ipv6(pod: &Pod) -> String {
    pod.addresses().iter().find(|it| it.is_ipv6()).unwrap().to_string()
}

/// The kernel no longer tells which address is the host's.
fn forget_own(node: &Node) {
    node.sh(&format!("ip addr del {OWN}/128 dev ens5; ip -6 rule del pref 1537"));
}

/// The host's global addresses on the VNIC's link.
fn hosts(node: &Node) -> Vec<String> {
    node.addresses("ens5").into_iter().filter(|it| it.starts_with("2603:")).collect()
}

#[test]
fn pod_address_listed_alone_is_not_assigned_to_the_host() {
    let (node, agent) = dual_stack_node().with_agent(&[]);
    let pod = Pod::add(&node, "a");
    pod.wait_connected();
    // Nothing but it is listed, and it is not known from before what is the host's: there is no address for the host. Where it is
    // known, see `remembered.rs`.
    drop(agent);
    std::fs::remove_dir_all(node.path("lib")).unwrap();
    node.publish_dual_stack(&[("pods", 33)]);
    forget_own(&node);
    list(&node, &[&ipv6(&pod)]);
    let agent = node.ready_agent(&[]);
    node.wait_grace(&agent);
    assert_eq!(hosts(&node), [""; 0]);
    assert!(pod.is_connected());
    assert_eq!(node.conditions(), ["HostAddressTaken"], "{}", agent.log());
    list(&node, &[&ipv6(&pod), OWN]);
    let is_repaired = || node.conditions().is_empty() && hosts(&node) == [format!("{OWN}/128")];
    wait_for("the host's own", is_repaired, || agent.log());
}

/// There only the kernel knows whose address the only listed one is.
#[test]
fn pod_address_is_not_assigned_to_the_host_without_index() {
    for index in [Some(r#"{"version":99}"#), None] {
        let (node, agent) = dual_stack_node().with_agent(&[]);
        let pod = Pod::add(&node, "a");
        pod.wait_connected();
        drop(agent);
        node.publish_dual_stack(&[("pods", 33)]);
        forget_own(&node);
        list(&node, &[&ipv6(&pod)]);
        let path = node.path("run/allocations.json");
        match index {
            Some(text) => std::fs::write(path, text).unwrap(),
            None => std::fs::remove_file(path).unwrap(),
        }
        let agent = node.ready_agent(&[]);
        // Of the VNIC's it comes last.
        let from = format!("1537 {}/128 ", ipv6(&pod));
        let configured = || node.rules(Family::Ipv6).iter().any(|rule| rule.starts_with(&from));
        wait_for("the VNIC to be configured", configured, || agent.log());
        assert_eq!(hosts(&node), [""; 0], "{index:?} {}", agent.log());
        assert!(pod.is_connected(), "{index:?}");
    }
}

/// As it is made while the pod has it and nothing else is listed.
#[test]
fn rule_for_pod_address_does_not_assign_it_to_host() {
    let node = dual_stack_node();
    node.sh(&format!("ip -6 rule add pref 1537 from {FOR_PODS} lookup 1000 proto 157"));
    list(&node, &[FOR_PODS, OWN]);
    let agent = node.ready_agent(&[]);
    wait_for("the host's own", || hosts(&node) == [format!("{OWN}/128")], || agent.log());
}

/// The address is as an agent made it that took the first one for the host's. The grace is not over, and holds for leftovers only.
#[test]
fn pod_address_assigned_to_the_host_is_removed_at_once() {
    let (node, agent) = dual_stack_node().with_agent(&["--detach-grace-seconds", "600"]);
    let pod = Pod::add(&node, "a");
    pod.wait_connected();
    drop(agent);
    let taken = ipv6(&pod);
    node.sh(&format!(
        "ip addr add {taken}/128 dev ens5 nodad; ip -6 rule add pref 1537 from {taken} lookup 1000 proto 157"
    ));
    // The kernel adds the address's local route later.
    wait_for("the pod is cut off", || !pod.is_connected(), String::new);
    list(&node, &[&taken, OWN]);
    let agent = node.ready_agent(&["--detach-grace-seconds", "600"]);
    wait_for("the host's own alone", || hosts(&node) == [format!("{OWN}/128")], || agent.log());
    pod.wait_connected();
}

#[test]
fn host_address_of_native_pod_network_replaces_the_chosen_one() {
    let node = dual_stack_node();
    node.publish("BACKOFF", &[]);
    list(&node, &[FOR_PODS, "2603:c020:0:33::21", OWN]);
    let agent = node.agent(&["--detach-grace-seconds", "600"]);
    wait_for("an address", || hosts(&node) == [format!("{FOR_PODS}/128")], || agent.log());
    let mut npn = native_pod_network("SUCCESS", &[("pods", 33)], true);
    npn["status"]["vnics"][0]["hostAddresses"] = json!([{"v4": "10.0.33.7", "v6": OWN}]);
    node.publish_document(&npn);
    node.wait_ready(&agent);
    assert_eq!(hosts(&node), [format!("{OWN}/128")], "{}", agent.log());
    for container in ["a", "b"] {
        Pod::add(&node, container).wait_connected();
    }
}
