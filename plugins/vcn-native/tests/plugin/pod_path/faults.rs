//! What must hold when things are not as they should be: newer records, closed streams.

use std::fs;
use std::process::Command;

use crate::node::{Node, PLUGIN, Pod};
use host_harness::Families;

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
