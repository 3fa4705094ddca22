//! What an operator sees of a run: one line, to the agent's socket when it listens, else to a file.

use std::fs;

use crate::node::{Families, Node, Pod};
use serde_json::Value;
use telemetry::{Listener, VerbRecord};

const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn run(node: &Node, verb: &str, pod: &Pod) {
    use std::os::fd::{AsFd, AsRawFd};
    let netns = format!("/proc/{}/fd/{}", std::process::id(), pod.netns.as_fd().as_raw_fd());
    let environment = [
        ("CNI_COMMAND", verb),
        ("CNI_CONTAINERID", pod.id.as_str()),
        ("CNI_NETNS", netns.as_str()),
        ("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0"),
        ("TRACEPARENT", TRACEPARENT),
    ];
    crate::node::assert_success(&node.call(&environment, &node.conf("1.0.0")));
}

#[test]
fn every_verb_hands_the_agent_a_line_with_who_what_how_long_and_in_which_trace() {
    let (node, pod) = (Node::new(Families::Dual), Pod::new("c1"));
    let listener = Listener::bind(node.state.path()).unwrap();
    for (verb, phases) in [
        ("ADD", &["netns", "pools", "ipam", "network", "commit"][..]),
        ("DEL", &["record", "observe", "network", "ipam"][..]),
    ] {
        run(&node, verb, &pod);
        let record = listener.recv().unwrap();
        let VerbRecord { container_id, ifname, network, plugin, code, .. } = &record;
        assert_eq!((plugin.as_str(), record.verb.as_str(), *code), ("vcn-native", verb, 0));
        assert_eq!((container_id.as_str(), ifname.as_str(), network.as_str()), ("c1", "eth0", "vcn-native"));
        assert_eq!((record.pod_namespace.as_deref(), record.pod_name.as_deref()), (Some("shop"), Some("web-0")));
        assert_eq!(record.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.0.0.8", "2001:db8::8"]);
        let timed: Vec<&str> = record.phases.iter().map(|(name, _)| name.as_ref()).collect();
        assert_eq!(timed, phases, "{verb}");
        assert!(record.phases.iter().map(|(_, micros)| micros).sum::<u64>() <= record.total_micros);
        assert_eq!(record.trace_id.as_deref(), Some("4bf92f3577b34da6a3ce929d0e0e4736"));
        assert_eq!(record.parent_span_id.as_deref(), Some("00f067aa0ba902b7"));
        assert!(record.span_id.is_some_and(|own| own != "00f067aa0ba902b7"), "a span of its own");
    }
    assert!(!node.state.path().join("verbs.log").exists());
}

#[test]
fn check_gc_and_a_status_that_says_no_are_told_too() {
    let (node, pod) = (Node::new(Families::V4), Pod::new("c1"));
    let mut conf = node.conf("1.1.0");
    conf["prevResult"] = crate::node::json_of(&node.cni("ADD", &pod, &conf));
    conf["cni.dev/valid-attachments"] = serde_json::json!([]);
    let listener = Listener::bind(node.state.path()).unwrap();
    let told = || listener.recv().map(|record| (record.verb, record.code)).unwrap();
    crate::node::assert_success(&node.cni("CHECK", &pod, &conf));
    assert_eq!(told(), ("CHECK".to_owned(), 0));
    crate::node::assert_success(&node.call(&[("CNI_COMMAND", "GC")], &conf));
    assert_eq!(told(), ("GC".to_owned(), 0));
    crate::node::assert_success(&node.call(&[("CNI_COMMAND", "STATUS")], &conf));
    fs::remove_file(node.state.path().join("pools.json")).unwrap();
    node.call(&[("CNI_COMMAND", "STATUS")], &conf);
    assert_eq!(told(), ("STATUS".to_owned(), 50));
}

#[test]
fn without_an_agent_the_line_is_in_a_file_and_a_failure_says_why() {
    let node = Node::new(Families::V4);
    node.add(&Pod::new("a"));
    node.write_pools(vec![]);
    node.cni("ADD", &Pod::new("b"), &node.conf("1.0.0"));
    let log = fs::read_to_string(node.state.path().join("verbs.log")).unwrap();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["containerId"], &lines[0]["code"]), (&"a".into(), &0.into()));
    assert_eq!(lines[1]["code"], 102);
    assert!(lines[1]["message"].as_str().unwrap().contains("no address is free"), "{}", lines[1]);
}

#[test]
fn an_agent_that_does_not_read_delays_no_verb_and_loses_no_line() {
    let (node, pod) = (Node::new(Families::V4), Pod::new("a"));
    let listener = Listener::bind(node.state.path()).unwrap();
    // More than a socket's queue holds.
    for _ in 0..20 {
        run(&node, "ADD", &pod);
        run(&node, "DEL", &pod);
    }
    let handed_over = std::iter::from_fn(|| listener.recv().ok()).count();
    let log = fs::read_to_string(node.state.path().join("verbs.log")).unwrap();
    assert!(handed_over > 0);
    assert_eq!(handed_over + log.lines().count(), 40);
}
