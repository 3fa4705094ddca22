//! `status`, `pools` and `plan`.

use serde_json::Value;

use crate::node::{Node, SLOW_RESYNC, wait_for};

/// Prints the words and exits with 0.
fn says(node: &Node, subcommand: &[&str], words: &[&str]) {
    let output = node.output(subcommand);
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert_eq!(output.status.code(), Some(0), "{subcommand:?}: {text}");
    for word in words {
        assert!(text.contains(word), "{word:?} is not in what {subcommand:?} says:\n{text}");
    }
}

fn json(node: &Node, subcommand: &str) -> Value {
    let output = node.output(&[subcommand, "-o", "json"]);
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn subcommands_print_the_answers_of_the_agent() {
    let (node, _agent) = Node::with_pods().with_agent(&[]);
    says(&node, &["status"], &["running, version", "ready               yes", "ens5", "1000", "10.0.33.7", "in sync"]);
    says(&node, &["pools"], &["ocid1.vnic.oc1.iad.pods", "ens5", "IPv4", "16"]);
    says(&node, &["plan"], &["Nothing would be changed."]);
    says(&node, &["why-not-ready"], &["Ready: new pods can start here."]);
    assert_eq!(json(&node, "why-not-ready")["ready"], true);
    assert_eq!(json(&node, "status")["agent"]["running"], true);
    assert_eq!(json(&node, "pools")["pools"][0]["free"], 16);
    assert_eq!(json(&node, "plan")["changes"], serde_json::json!([]));
    assert_eq!(json(&node, "attachments"), serde_json::json!([]));
    let (_, text) = node.run(&["status"]);
    assert_eq!(text.lines().filter(|line| line.starts_with("instance ")).count(), 1, "{text}");
}

#[test]
fn missing_agent_is_an_error_with_exit_status_3() {
    let node = Node::with_pods();
    for subcommand in ["status", "why-not-ready", "pools", "attachments", "plan", "health"] {
        let output = node.output(&[subcommand]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.starts_with("oke-node-agent: the agent is not running (/run/vcn-native/agent.sock: "), "{said}");
        assert_eq!((output.status.code(), output.stdout), (Some(3), Vec::new()), "{subcommand}");
    }
}

#[test]
fn plan_shows_drift_without_events() {
    let (node, _agent) = Node::with_pods().with_agent(&SLOW_RESYNC);
    // No event tells of a setting.
    let set = || std::fs::write("/proc/sys/net/ipv4/neigh/ens5/proxy_delay", "80").unwrap();
    // As often as the passes that follow the start repair it.
    let planned = || {
        node.inside(set);
        node.run(&["plan"]).1.contains("proxy_delay=0 (was 80)")
            && node.sysctl("net/ipv4/neigh/ens5/proxy_delay") == "80"
    };
    wait_for("the plan", planned, || node.run(&["plan"]).1);
}
