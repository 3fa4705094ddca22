//! ADD and DEL of the real binary on a real kernel: packets, results, what is left, what is refused.

use crate::node::{Families, Node, Pod, assert_success, error_of, json_of, reaches};
use serde_json::{Value, json};
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
        let index = socket.index_of(&crate::node::name("eth0")).unwrap();
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
    assert!(pod.reaches("10.0.0.1") && pod.reaches("2001:db8::1"));
    assert_eq!((node.pod_rules(Family::Ipv4).len(), node.pod_rules(Family::Ipv6).len()), (1, 1));
}

#[test]
fn ipv6_works_where_the_namespace_has_it_switched_off() {
    let node = Node::new(Families::V6);
    let pod = Pod::new("a");
    let off =
        |which| netlink::Sysctls::new("/proc/sys".as_ref()).write(&["net", "ipv6", "conf", which, "disable_ipv6"], "1");
    pod.netns.run(|| off("default").and_then(|_| off("all"))).unwrap().unwrap();
    let mut conf = node.conf("1.0.0");
    conf["prevResult"] = node.add(&pod);
    assert!(pod.reaches("2001:db8::1"));
    for own in ["2001:db8::8", "::1"] {
        assert!(pod.reaches(own), "a pod reaches itself at {own}");
    }
    assert_success(&node.cni("CHECK", &pod, &conf));
    pod.netns.run(|| off("lo")).unwrap().unwrap();
    let (_, text) = error_of(&node.cni("CHECK", &pod, &conf));
    assert!(text.contains("pod: sysctl net/ipv6/conf/lo/disable_ipv6=0 (was 1)"), "{text}");
}

#[test]
fn pod_reaches_router_when_host_disables_forwarding_on_new_links() {
    let node = Node::new(Families::V4);
    // What a hardening drop-in does to a node that is at work.
    let off = || netlink::Sysctls::default().write(&["net", "ipv4", "conf", "default", "forwarding"], "0");
    node.host.run(off).unwrap().unwrap();
    let pod = Pod::new("a");
    let mut conf = node.conf("1.0.0");
    conf["prevResult"] = node.add(&pod);
    assert!(pod.reaches("10.0.0.1"));
    assert_success(&node.cni("CHECK", &pod, &conf));
}

#[test]
fn the_result_is_shaped_for_each_version() {
    for (version, has_version_field, has_mtu) in
        [("0.3.1", true, false), ("0.4.0", true, false), ("1.0.0", false, false), ("1.1.0", false, true)]
    {
        let node = Node::new(Families::V4);
        let result = json_of(&node.cni("ADD", &Pod::new("a"), &node.conf(version)));
        assert_eq!(result["cniVersion"], version);
        assert_eq!(result["ips"][0].get("version").is_some(), has_version_field, "{version}");
        assert_eq!(result["interfaces"][1].get("mtu").is_some(), has_mtu, "{version}");
        assert_eq!((&result["ips"][0]["address"], &result["ips"][0]["interface"]), (&json!("10.0.0.8/32"), &json!(1)));
        assert_eq!(result["interfaces"][1]["name"], "eth0");
        assert_eq!(result["routes"], json!([{"dst": "0.0.0.0/0", "gw": "169.254.1.1"}]));
    }
}

#[test]
fn version_lists_all_four_and_reads_no_stdin() {
    let node = Node::new(Families::V4);
    let answer = json_of(&node.call(&[("CNI_COMMAND", "VERSION")], &Value::Null));
    assert_eq!(answer["supportedVersions"], json!(["0.3.1", "0.4.0", "1.0.0", "1.1.0"]));
}

#[test]
fn del_leaves_the_host_exactly_as_it_was() {
    let node = Node::new(Families::Dual);
    let before = node.snapshot();
    let pods: Vec<_> = (0..4).map(|id| Pod::new(&format!("p{id}"))).collect();
    pods.iter().for_each(|pod| drop(node.add(pod)));
    assert_ne!(node.snapshot(), before);
    pods.iter().for_each(|pod| node.del(pod));
    assert_eq!(node.snapshot(), before);
    let held = node.allocations();
    assert_eq!((held.allocations.len(), held.freed.len()), (0, 8), "every address cools down");
}

#[test]
fn del_succeeds_again_and_without_namespace_record_pools_or_configuration() {
    let node = Node::new(Families::V4);
    let before = node.snapshot();
    let pod = Pod::new("a");
    node.add(&pod);
    std::fs::remove_file(node.state.path().join("allocations.json")).unwrap();
    std::fs::remove_file(node.state.path().join("pools.json")).unwrap();
    node.write_pools(vec![]);
    for netns in ["", "/proc/1/ns/absent", "/dev/null"] {
        let environment = [("CNI_COMMAND", "DEL"), ("CNI_CONTAINERID", "a"), ("CNI_NETNS", netns)];
        assert_success(&node.call(&environment, &node.conf("1.0.0")));
    }
    assert_eq!(node.snapshot(), before);
}

#[test]
fn a_repeated_add_answers_the_same_and_changes_nothing() {
    let node = Node::new(Families::Dual);
    let pod = Pod::new("a");
    let (first, state) = (node.add(&pod), node.snapshot());
    assert_eq!(node.add(&pod), first);
    assert_eq!(node.snapshot(), state);
    assert!(pod.reaches("10.0.0.1"));
}

#[test]
fn add_with_known_key_and_new_netns_creates_new_network() {
    let node = Node::new(Families::V4);
    let first = node.add(&Pod::new("a"));
    let again = Pod::new("a");
    let result = node.add(&again);
    assert_eq!(result["ips"], first["ips"]);
    assert!(again.reaches("10.0.0.1"));
    let mut conf = node.conf("1.0.0");
    conf["prevResult"] = result;
    assert_success(&node.cni("CHECK", &again, &conf));
}

#[test]
fn add_rolls_back_when_pod_has_link_of_that_name() {
    let node = Node::new(Families::Dual);
    let (before, pod) = (node.snapshot(), Pod::new("a"));
    pod.netns
        .run(|| {
            let bridge = netlink::NewLink::new(crate::node::name("eth0"), netlink::LinkKind::Bridge);
            netlink::Socket::open().unwrap().add_link(&bridge).unwrap();
        })
        .unwrap();
    let (code, text) = error_of(&node.cni("ADD", &pod, &node.conf("1.0.0")));
    assert_eq!(code, 106, "{text}");
    assert_eq!(node.snapshot(), before);
    assert!(node.allocations().allocations.is_empty());
}

#[test]
fn add_fails_and_keeps_foreign_link_with_our_name() {
    let node = Node::new(Families::V4);
    let pod = Pod::new("a");
    let host_name = node.add(&pod)["interfaces"][0]["name"].as_str().unwrap().to_owned();
    node.del(&pod);
    node.in_host(|socket| {
        socket.add_link(&netlink::NewLink::new(crate::node::name(&host_name), netlink::LinkKind::Bridge)).unwrap();
    });
    let (code, text) = error_of(&node.cni("ADD", &pod, &node.conf("1.0.0")));
    assert_eq!(code, 103, "{text}");
    assert!(node.in_host(|socket| socket.index_of(&crate::node::name(&host_name)).is_ok()));
}

#[test]
fn add_returns_11_and_status_50_without_current_pools() {
    let node = Node::new(Families::V4);
    std::fs::remove_file(node.state.path().join("pools.json")).unwrap();
    let (code, text) = error_of(&node.cni("ADD", &Pod::new("a"), &node.conf("1.1.0")));
    assert_eq!(code, 11, "{text}");
    assert!(text.contains("no address pools of this boot"), "{text}");
    assert_eq!(error_of(&node.call(&[("CNI_COMMAND", "STATUS")], &node.conf("1.1.0"))).0, 50);
}

#[test]
fn a_full_pool_is_explained_and_status_stays_healthy() {
    let node = Node::new(Families::V4);
    let pods: Vec<_> = (0..16).map(|id| Pod::new(&format!("p{id}"))).collect();
    pods.iter().for_each(|pod| drop(node.add(pod)));
    let (code, text) = error_of(&node.cni("ADD", &Pod::new("more"), &node.conf("1.1.0")));
    assert_eq!(code, 102, "{text}");
    assert!(text.contains("2 VNIC(s) serve pods, 16 IPv4 address(es) in use"), "{text}");
    assert_success(&node.call(&[("CNI_COMMAND", "STATUS")], &node.conf("1.1.0")));
}

#[test]
fn status_fails_when_node_lacks_pod_vnics_beyond_grace_period() {
    let node = Node::new(Families::Dual);
    node.write_pools(Vec::new());
    let status = || node.call(&[("CNI_COMMAND", "STATUS")], &node.conf("1.1.0"));
    assert_success(&status());
    let file = std::fs::File::options().write(true).open(node.state.path().join("pools.json")).unwrap();
    let written = |ago| file.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(ago)).unwrap();
    written(25);
    assert_success(&status());
    written(31);
    let (code, text) = error_of(&status());
    assert_eq!(code, 50, "{text}");
    assert!(text.contains("\"no VNIC has addresses for pods; `oke-node-agent why-not-ready`"), "{text}");
}

#[test]
fn check_passes_after_add_and_names_what_is_broken() {
    let node = Node::new(Families::Dual);
    let pod = Pod::new("a");
    let result = node.add(&pod);
    let mut conf = node.conf("1.0.0");
    conf["prevResult"] = result;
    assert_success(&node.cni("CHECK", &pod, &conf));
    let rule = node.pod_rules(Family::Ipv4).pop().unwrap();
    node.in_host(|socket| socket.delete_rule(&rule).unwrap());
    let (code, text) = error_of(&node.cni("CHECK", &pod, &conf));
    assert_eq!(code, 107, "{text}");
    assert!(text.contains("rule add pref 1536 from 10.0.0.8 lookup 1001"), "{text}");
}
