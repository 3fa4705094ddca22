//! An ADD that is repeated for a pod that runs: whatever becomes of it, the pod is as it was. And a pod's second interface.

use std::process::Command;
use std::time::Duration;

use crate::node::{Families, Node, Pod, assert_success, error_of, json_of, within};

fn on_host(node: &Node, line: &str) {
    let output = node.host.run(|| Command::new("sh").args(["-ec", line]).output().unwrap()).unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Renames the VNIC's link as it is up; the agent then says so in the pools.
fn rename(node: &Node, to: &str) {
    on_host(node, &format!("ip link set ens5 name {to}"));
    let mut vnics = node.pools().vnics;
    vnics[0].link = crate::node::name(to);
    node.write_pools(vnics);
}

#[test]
fn a_repeated_add_that_the_kernel_refuses_leaves_the_running_pod_as_it_was() {
    let node = Node::new(Families::V4);
    let pod = Pod::new("a");
    node.add(&pod);
    // What a repeated ADD would mend, and cannot: the proxy, whose link has gone by another name that nobody was told.
    on_host(&node, "ip neigh del proxy 10.0.0.8 dev ens5; ip link set ens5 name storage0");
    let whole = node.snapshot();
    for _ in 0..2 {
        assert_eq!(error_of(&node.cni("ADD", &pod, &node.conf("1.0.0"))).0, 104);
        assert_eq!(node.snapshot(), whole);
    }
    on_host(&node, "ip neigh add proxy 10.0.0.8 dev storage0");
    assert!(within(Duration::from_secs(10), || pod.reaches("10.0.0.1")));
}

#[test]
fn a_pod_outlives_that_its_vnics_link_is_renamed_for_add_check_and_del() {
    let node = Node::new(Families::Dual);
    let (before, pod) = (node.snapshot(), Pod::new("a"));
    let answer = node.add(&pod);
    rename(&node, "storage0");
    assert_eq!(json_of(&node.cni("ADD", &pod, &node.conf("1.0.0")))["ips"], answer["ips"]);
    assert!(pod.reaches("10.0.0.1"));
    let mut conf = node.conf("1.0.0");
    conf["prevResult"] = answer;
    assert_success(&node.cni("CHECK", &pod, &conf));
    node.del(&pod);
    rename_back(&node);
    assert_eq!(node.snapshot(), before, "no proxy stays");
}

fn rename_back(node: &Node) {
    on_host(node, "ip link set storage0 name ens5");
}

fn named(node: &Node, verb: &str, pod: &Pod, interface: &str) -> std::process::Output {
    let netns = pod.path();
    let variables = [
        ("CNI_COMMAND", verb),
        ("CNI_CONTAINERID", &pod.id),
        ("CNI_NETNS", netns.to_str().unwrap()),
        ("CNI_IFNAME", interface),
    ];
    node.call(&variables, &node.conf("1.0.0"))
}

#[test]
fn the_only_interface_of_a_pod_may_have_any_name() {
    let node = Node::new(Families::Dual);
    let (before, pod) = (node.snapshot(), Pod::new("a"));
    assert_eq!(json_of(&named(&node, "ADD", &pod, "net1"))["interfaces"][1]["name"], "net1");
    assert!(pod.reaches("10.0.0.1") && pod.reaches("2001:db8::1"));
    assert_success(&named(&node, "DEL", &pod, "net1"));
    assert_eq!(node.snapshot(), before);
}

#[test]
fn a_second_interface_is_refused_with_the_reason_and_the_first_one_lives() {
    for families in [Families::V4, Families::V6, Families::Dual] {
        let node = Node::new(families);
        let pod = Pod::new("a");
        node.add(&pod);
        let whole = node.snapshot();
        let (code, text) = error_of(&named(&node, "ADD", &pod, "net1"));
        assert!(code == 106 && text.contains("another interface of the pod has the default route"), "{text}");
        assert_eq!(node.snapshot(), whole);
        assert!(pod.reaches(if families == Families::V6 { "2001:db8::1" } else { "10.0.0.1" }));
    }
}
