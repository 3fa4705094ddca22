//! What must hold when things are not as they should be: lost and damaged records, names that are taken, closed streams.

use std::fs;
use std::process::Command;

use crate::node::{Node, PLUGIN, Pod};
use host_harness::{Families, PATIENCE, within};
use vcn::Family;

#[test]
fn pods_keep_network_when_index_is_lost_or_damaged() {
    for damage in [None, Some("{\"version\":1,")] {
        let node = Node::new(Families::Dual);
        let pods: Vec<_> = (0..3).map(|id| Pod::new(&format!("p{id}"))).collect();
        let before: Vec<_> = pods.iter().map(|pod| node.add(pod)["ips"].clone()).collect();
        match damage {
            None => fs::remove_file(node.file("allocations.json")).unwrap(),
            Some(text) => fs::write(node.file("allocations.json"), text).unwrap(),
        }
        let late = Pod::new("late");
        assert!(!before.contains(&node.add(&late)["ips"]), "an address of its own");
        let goes_out = |pod: &Pod| within(PATIENCE, || pod.pings("10.0.0.1") || pod.pings("10.0.1.1"));
        assert!(pods.iter().chain([&late]).all(goes_out), "by the VNIC's table, so the rules are there");
        assert_eq!(node.held(), 4, "the record is whole again");
        assert_eq!(node.file("allocations.json.damaged").exists(), damage.is_some());
        // And with it, taking down works as ever.
        pods.iter().chain([&late]).for_each(|pod| node.del(pod));
        assert!(Family::ALL.into_iter().all(|family| node.pod_rules(family).is_empty()));
    }
}

#[test]
fn add_refuses_index_of_newer_format_by_name() {
    let node = Node::new(Families::V4);
    fs::write(node.file("allocations.json"), r#"{"version":2,"everything":"different"}"#).unwrap();
    let (code, text) = node.refusal("ADD", &Pod::new("a"));
    assert!(code == 101 && text.contains("has format version 2"), "{text}");
}

#[test]
fn closed_stream_never_redirects_reply_into_a_state_file() {
    for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
        let node = Node::new(Families::V4);
        let pod = Pod::new("a");
        node.add(&Pod::new("before"));
        let held = fs::read(node.file("allocations.json")).unwrap();
        let conf = node.file("conf");
        fs::write(&conf, node.conf("1.0.0").to_string()).unwrap();
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &format!("exec {PLUGIN} <{} {closed}", conf.display())]);
        drop(node.start_by(shell, "ADD", &pod, &node.conf("1.0.0")).wait_with_output().unwrap());
        let now = node.allocations();
        assert!(
            !now.allocations.is_empty() && fs::read(node.file("allocations.json")).unwrap().starts_with(&held[..20]),
            "{closed}"
        );
        assert!(node.pools().vnics.len() == 2);
        node.del(&pod);
        assert_eq!(node.held(), 1, "{closed}");
    }
}
