//! ADD and DEL of the real binary on a real kernel: packets, results, what is refused.

use crate::node::{Node, Pod};
use host_harness::{Families, assert_success, error_of, name, reaches, sh};
use serde_json::json;
use vcn::Family;

#[test]
fn ipv4_pod_reaches_router_node_and_other_pods() {
    let node = Node::new(Families::V4);
    let (a, b) = (Pod::new("a"), Pod::new("b"));
    node.add(&a);
    node.add(&b);
    // Pods spread over the VNICs: a is on the first, b on the second.
    assert!(a.reaches("10.0.0.1"), "its virtual router");
    assert!(a.reaches("10.0.0.2"), "its own node");
    assert!(a.reaches("10.0.1.8") && b.reaches("10.0.0.8"), "each other");
    assert!(reaches(&node.host, "10.0.0.8"), "the node reaches the pod");
    assert!(reaches(&node.routers[1], "10.0.1.8"), "the subnet reaches the pod: the node answers ARP for it");
}

#[test]
fn an_ipv6_pod_is_reachable_at_once() {
    let node = Node::new(Families::V6);
    let (a, b) = (Pod::new("a"), Pod::new("b"));
    node.add(&a);
    node.add(&b);
    // Nothing is checked for duplicates before the first packet.
    let tentative = |pod: &Pod| {
        let mut socket = netlink::Socket::open_in(&pod.netns).unwrap();
        let index = socket.index_of(&name("eth0")).unwrap();
        let addresses = socket.addresses(Some(index)).unwrap();
        addresses.iter().any(|it| it.tentative && it.address.to_string().starts_with("2001:db8:"))
    };
    assert!(!tentative(&a) && !tentative(&b));
    assert!(a.reaches("2001:db8:1::8"));
    assert!(a.reaches("2001:db8::1") && reaches(&node.routers[0], "2001:db8::8"));
}

#[test]
fn a_dual_stack_pod_has_both_families_on_one_vnic() {
    let node = Node::new(Families::Dual);
    let pod = Pod::new("a");
    let result = node.add(&pod);
    let addresses: Vec<_> = result["ips"].as_array().unwrap().iter().map(|ip| ip["address"].clone()).collect();
    assert_eq!(addresses, ["10.0.0.8/32", "2001:db8::8/128"]);
    assert_eq!((&result["interfaces"][1]["name"], &result["ips"][0]["interface"]), (&json!("eth0"), &json!(1)));
    let routes = json!([{"dst": "0.0.0.0/0", "gw": "169.254.1.1"}, {"dst": "::/0", "gw": "fe80::1"}]);
    assert_eq!(result["routes"], routes);
    assert!(pod.reaches("10.0.0.1") && pod.reaches("2001:db8::1"));
    assert_eq!((node.pod_rules(Family::Ipv4).len(), node.pod_rules(Family::Ipv6).len()), (1, 1));
}

#[test]
fn ipv6_works_where_the_namespace_has_it_switched_off() {
    let node = Node::new(Families::V6);
    let pod = Pod::new("a");
    let off = |link: &str| drop(sh(&pod.netns, &format!("echo 1 >/proc/sys/net/ipv6/conf/{link}/disable_ipv6")));
    off("default");
    off("all");
    let conf = node.add_to_check(&pod);
    for target in ["2001:db8::1", "2001:db8::8", "::1"] {
        assert!(pod.reaches(target), "{target}");
    }
    assert_success(&node.cni("CHECK", &pod, &conf));
    off("lo");
    let (_, text) = error_of(&node.cni("CHECK", &pod, &conf));
    assert!(text.contains("pod: sysctl net/ipv6/conf/lo/disable_ipv6=0 (was 1)"), "{text}");
}

/// What a hardening drop-in does to a node that is at work.
#[test]
fn pod_reaches_routers_when_host_hardens_new_links() {
    for setting in ["echo 0 >ipv4/conf/default/forwarding", "echo 1 >ipv6/conf/default/disable_ipv6"] {
        let node = Node::new(Families::Dual);
        node.sh(&format!("cd /proc/sys/net; {setting}"));
        let pod = Pod::new("a");
        let conf = node.add_to_check(&pod);
        assert!(pod.reaches("10.0.0.1") && pod.reaches("2001:db8::1"), "{setting}");
        assert_success(&node.cni("CHECK", &pod, &conf));
    }
}

#[test]
fn add_with_known_key_and_new_netns_creates_new_network() {
    let node = Node::new(Families::V4);
    let first = node.add(&Pod::new("a"));
    let again = Pod::new("a");
    let conf = node.add_to_check(&again);
    assert_eq!(conf["prevResult"]["ips"], first["ips"]);
    assert!(again.reaches("10.0.0.1"));
    assert_success(&node.cni("CHECK", &again, &conf));
}

#[test]
fn add_rolls_back_when_netns_has_foreign_link_of_that_name() {
    for is_known in [false, true] {
        let node = Node::new(Families::Dual);
        let (before, pod) = (node.snapshot(), Pod::new("a"));
        if is_known {
            // Of a namespace that has gone.
            node.add(&Pod::new("a"));
        }
        sh(&pod.netns, "ip link add eth0 type bridge");
        let (code, text) = node.refusal("ADD", &pod);
        assert_eq!(code, 106, "{text}");
        if !is_known {
            assert_eq!((node.snapshot(), node.held()), (before, 0));
        }
    }
}

#[test]
fn a_full_pool_is_explained_and_status_stays_healthy() {
    let node = Node::with_addresses(&["10.0.0.8/31"]);
    let pods = ["a", "b"].map(Pod::new);
    pods.iter().for_each(|pod| drop(node.add(pod)));
    let (code, text) = node.refusal("ADD", &Pod::new("more"));
    assert!(code == 102 && text.contains("1 VNIC(s) serve pods, 2 IPv4 address(es) in use"), "{code} {text}");
    assert_success(&node.call(&[("CNI_COMMAND", "STATUS")], &node.conf("1.1.0")));
}
