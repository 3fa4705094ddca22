//! An ADD that is repeated for a pod that runs: whatever becomes of it, the pod is as it was. And a pod's second interface.

use host_harness::{Families, assert_success, error_of, json_of, name, sh};

use crate::node::{Node, Pod, host_link, is_of_fe80_1};

/// Renames the VNIC's link as it is up; the agent then says so in the pools.
fn rename(node: &Node, to: &str) {
    node.sh(&format!("ip link set ens5 name {to}"));
    node.change_pools(|vnics| vnics[0].link = name(to));
}

#[test]
fn repeated_add_keeps_running_pod_when_kernel_refuses_repair() {
    let (node, pod) = (Node::new(Families::V4), Pod::new("a"));
    node.add(&pod);
    // What a repeated ADD would mend, and cannot: the proxy, whose link was renamed without notice.
    node.sh("ip neigh del proxy 10.0.0.8 dev ens5; ip link set ens5 name storage0");
    let whole = node.snapshot();
    for _ in 0..2 {
        assert_eq!(node.refusal("ADD", &pod).0, 104);
        assert_eq!(node.snapshot(), whole);
    }
    node.sh("ip neigh add proxy 10.0.0.8 dev storage0");
    assert!(pod.reaches("10.0.0.1"));
}

#[test]
fn pod_survives_rename_of_its_vnic_link() {
    let node = Node::new(Families::Dual);
    let (before, pod) = (node.snapshot(), Pod::new("a"));
    let conf = node.add_to_check(&pod);
    rename(&node, "storage0");
    assert_eq!(node.add(&pod)["ips"], conf["prevResult"]["ips"]);
    assert!(pod.reaches("10.0.0.1"));
    assert_success(&node.cni("CHECK", &pod, &conf));
    node.del(&pod);
    node.sh("ip link set storage0 name ens5");
    assert_eq!(node.snapshot(), before, "no proxy stays");
}

/// A virtual address, a neighbour and a route of a chained plugin's or of the pod's own, and what another program put on the host end.
const OTHERS_IN_POD: [&str; 6] = [
    "ip addr add 10.9.9.9/32 dev eth0",
    "ip addr add 2001:db8:99::9/128 dev eth0 nodad",
    "ip neigh add 10.9.9.1 lladdr 02:00:00:00:00:77 nud permanent dev eth0",
    "ip neigh add 2001:db8:99::1 lladdr 02:00:00:00:00:77 nud permanent dev eth0",
    "ip neigh add proxy 10.9.9.2 dev eth0",
    "ip route add 10.9.8.0/24 dev eth0",
];
const OTHERS_ON_HOST: [&str; 5] = [
    "ip neigh add ADDRESS lladdr MAC nud permanent dev VETH",
    "ip neigh add proxy 10.9.9.3 dev VETH",
    "ip addr add 10.9.9.4/32 dev VETH",
    "ip route add 10.77.0.0/24 dev VETH",
    "ip route add 10.78.0.0/24 dev VETH table 999 proto 17",
];

/// All that is on the links of a namespace, but for what the kernel adds and changes by itself.
fn everything(netns: &netlink::Netns) -> String {
    let look = "for family in 4 6; do ip -$family -o addr; ip -$family route show table all | grep -v fe80::/64
                ip -$family neigh show nud permanent; ip -$family neigh show proxy; done | grep -v multicast | sort";
    // The address that a link gives itself once it is checked for duplicates, and the routes of IPv6 addresses, which come later.
    let lines = sh(netns, look);
    let own = |line: &&str| {
        line.contains("fe80:") && !is_of_fe80_1(line)
            || line.starts_with("local ") && line.contains(" proto kernel metric 0 ")
    };
    lines.lines().filter(|line| !own(line)).collect::<Vec<_>>().join("\n")
}

#[test]
fn repeated_add_and_check_ignore_foreign_objects_on_pod_links() {
    for families in [Families::Dual, Families::V4] {
        let node = Node::new(families);
        let pod = Pod::new("a");
        let conf = node.add_to_check(&pod);
        let answer = &conf["prevResult"];
        let (link, mac) = (host_link(answer), answer["interfaces"][1]["mac"].as_str().unwrap());
        // A pod of IPv4 alone may have its host end's fe80::1 from another program.
        let of_v4 = (families == Families::V4).then_some("ip addr add fe80::1/128 dev VETH nodad");
        for line in OTHERS_ON_HOST.into_iter().chain(of_v4) {
            node.sh(&line.replace("VETH", &link).replace("MAC", mac).replace("ADDRESS", "10.0.0.8"));
        }
        sh(&pod.netns, &OTHERS_IN_POD.join("\n"));
        let all = || (everything(&node.host), everything(&pod.netns), node.snapshot());
        let whole = all();
        assert_success(&node.cni("CHECK", &pod, &conf));
        assert_eq!(node.add(&pod), *answer);
        assert_eq!(all(), whole);
        assert!(pod.reaches("10.0.0.1"));
        node.del(&pod);
    }
}

#[test]
fn repeated_add_removes_our_obsolete_objects_in_the_pod() {
    let node = Node::new(Families::V4);
    let pod = Pod::new("a");
    node.add(&pod);
    let whole = everything(&pod.netns);
    for line in [
        "ip neigh add 10.9.9.1 lladdr 02:00:00:00:00:77 nud permanent dev eth0 protocol 157",
        "ip route add 10.9.8.0/24 dev eth0 proto 157",
        "ip neigh replace 169.254.1.1 lladdr 02:00:00:00:00:77 nud permanent dev eth0 protocol static",
    ] {
        sh(&pod.netns, line);
    }
    node.add(&pod);
    assert_eq!(everything(&pod.netns), whole);
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
fn second_interface_is_refused_and_first_one_keeps_working() {
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
