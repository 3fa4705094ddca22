//! What an operator sees of a run: one line, to the agent's socket when it listens, else to a file.

use std::fs;
use std::io::ErrorKind;
use std::process::Output;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::node::{Node, Pod};
use host_harness::{Families, assert_success, error_of, json_of};
use serde_json::{Value, json};
use telemetry::{Listener, VerbRecord};

const POD: RecordSubject = RecordSubject { container: "c1", ifname: "eth0", pod: Some(("shop", "web-0")) };
const NODE: RecordSubject = RecordSubject { container: "", ifname: "", pod: None };

/// The subject of a verb's record: a container and its pod, or neither.
struct RecordSubject {
    container: &'static str,
    ifname: &'static str,
    pod: Option<(&'static str, &'static str)>,
}

fn call(node: &Node, verb: &str, pod: &Pod, conf: &Value) -> Output {
    let netns = pod.path();
    let about_a_pod = [
        ("CNI_CONTAINERID", pod.id.as_str()),
        ("CNI_NETNS", netns.to_str().unwrap()),
        ("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0"),
    ];
    let about_a_pod = if ["GC", "STATUS"].contains(&verb) { &[][..] } else { &about_a_pod };
    node.call(&[&[("CNI_COMMAND", verb)], about_a_pod].concat(), conf)
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis().try_into().unwrap()
}

#[test]
fn verbs_send_agent_a_line_with_pod_and_phases() {
    let (node, pod) = (Node::new(Families::Dual), Pod::new("c1"));
    let listener = Listener::bind(node.state.path()).unwrap();
    let (first, second) = (&["10.0.0.8", "2001:db8::8"][..], &["10.0.0.9", "2001:db8::9"][..]);
    let add = &["netns", "pools", "ipam", "network", "commit"][..];
    let mut conf = node.conf("1.1.0");
    conf["cni.dev/valid-attachments"] = json!([]);
    for (verb, subject, addresses, phases, code) in [
        ("ADD", POD, first, add, 0),
        ("CHECK", POD, first, &["record", "observe"], 0),
        ("DEL", POD, first, &["record", "observe", "network", "ipam"], 0),
        ("ADD", POD, second, add, 0),
        ("GC", NODE, second, &["record", "observe", "network", "ipam"], 0),
        ("STATUS", NODE, &[], &[], 50),
    ] {
        let begun = now();
        let output = call(&node, verb, &pod, &conf);
        match verb {
            "ADD" => conf["prevResult"] = json_of(&output),
            "STATUS" => assert_eq!(error_of(&output).0, 50),
            _ => assert_success(&output),
        }
        let record = listener.recv().unwrap();
        let expected = VerbRecord {
            plugin: "vcn-native".into(),
            plugin_version: env!("CARGO_PKG_VERSION").into(),
            verb: verb.into(),
            network: "vcn-native".into(),
            container_id: subject.container.into(),
            ifname: subject.ifname.into(),
            pod_namespace: subject.pod.map(|(namespace, _)| namespace.into()),
            pod_name: subject.pod.map(|(_, name)| name.into()),
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
            code,
            ..record.clone()
        };
        assert_eq!(record, expected);
        assert!((begun..=now()).contains(&record.unix_millis), "{record:?}");
        let timed: Vec<&str> = record.phases.iter().map(|(name, _)| name.as_ref()).collect();
        assert_eq!(timed, phases, "{verb}");
        let micros = record.phases.iter().map(|(_, micros)| micros).sum::<u64>();
        assert!(micros <= record.total_micros && record.total_micros > 0, "{record:?}");
        assert_eq!((record.message.contains("pools.json"), record.message.is_empty()), (code != 0, code == 0));
        assert_eq!(listener.recv().unwrap_err().kind(), ErrorKind::WouldBlock, "one line");
        node.age();
        if verb == "GC" {
            // A STATUS that says yes is worth no line.
            assert_success(&call(&node, "STATUS", &pod, &conf));
            fs::remove_file(node.file("pools.json")).unwrap();
        }
    }
    assert!(!node.file("verbs.log").exists());
}

#[test]
fn line_is_written_to_file_without_agent_and_explains_failure() {
    let node = Node::new(Families::V4);
    node.add(&Pod::new("a"));
    node.write_pools(vec![]);
    node.cni("ADD", &Pod::new("b"), &node.conf("1.0.0"));
    let log = fs::read_to_string(node.file("verbs.log")).unwrap();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["containerId"], &lines[0]["code"]), (&"a".into(), &0.into()));
    assert_eq!(lines[1]["code"], 102);
    assert!(lines[1]["message"].as_str().unwrap().contains("no address is free"), "{}", lines[1]);
}

#[test]
fn unresponsive_agent_delays_no_verb_and_loses_no_line() {
    let (node, pod) = (Node::new(Families::V4), Pod::new("a"));
    let listener = Listener::bind(node.state.path()).unwrap();
    // More than a socket's queue holds.
    for verb in ["ADD", "DEL"].iter().cycle().take(40) {
        assert_success(&call(&node, verb, &pod, &node.conf("1.0.0")));
    }
    let handed_over = std::iter::from_fn(|| listener.recv().ok()).count();
    let log = fs::read_to_string(node.file("verbs.log")).unwrap();
    assert!(handed_over > 0);
    assert_eq!(handed_over + log.lines().count(), 40);
}
