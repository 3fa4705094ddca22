//! `status`, `pools` and `plan`, with an agent and without one.

use serde_json::Value;

use crate::hanging::hangs;
use crate::node::{Node, RARELY, wait_for};

const ALONE: &str = "The agent is not running";

/// Prints the words and exits with the status: 0, or 3 where no agent runs.
fn says(node: &Node, subcommand: &[&str], words: &[&str]) {
    let output = node.output(subcommand);
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    let expected = if words.contains(&ALONE) { 3 } else { 0 };
    assert_eq!(output.status.code(), Some(expected), "{subcommand:?}: {text}");
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
    let (_, text) = node.run(&["status"]);
    assert!(!text.contains(ALONE));
    assert_eq!(text.lines().filter(|line| line.starts_with("instance ")).count(), 1, "{text}");
}

#[test]
fn subcommands_print_json_with_and_without_an_agent() {
    const QUESTIONS: [&[&str]; 7] = [
        &["status"],
        &["why-not-ready"],
        &["pools"],
        &["attachments"],
        &["plan"],
        &["config"],
        &["config", "--explain"],
    ];
    let (node, agent) = Node::with_pods().with_agent(&[]);
    let answers = || {
        QUESTIONS.map(|question| {
            let output = node.output(&[question, &["-o", "json"]].concat());
            let said = String::from_utf8(output.stdout).unwrap();
            let answer = serde_json::from_str::<Value>(&said);
            answer.unwrap_or_else(|error| panic!("{question:?}: {error}: {said}"))
        })
    };
    let with = answers();
    agent.stop();
    let without = answers();
    says(&node, &["status"], &[ALONE, "in sync"]);
    says(&node, &["pools"], &[ALONE, "ocid1.vnic.oc1.iad.pods"]);
    says(&node, &["plan"], &[ALONE, "Nothing would be changed."]);
    assert_eq!(without[0]["agent"]["running"], false);
    // That nothing is to be done is not said for want of a plugin's answer.
    let missing = "portmap is left out of the chain: its binary is missing";
    assert_eq!(without[4]["podNetwork"]["notes"], serde_json::json!([missing]));
    // Configurations do not depend on whether an agent runs; of the others, each has what the agent's had.
    assert_eq!(with[5..], without[5..]);
    let keys = |answer: &Value| answer.as_object().map(|it| it.keys().cloned().collect::<Vec<_>>());
    assert_eq!(with.each_ref().map(keys), without.each_ref().map(keys));
}

#[test]
fn plan_shows_drift_without_events() {
    let (node, _agent) = Node::with_pods().with_agent(&RARELY);
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

#[test]
fn subcommands_work_on_a_fresh_node_without_agent() {
    let node = Node::with_pods();
    says(
        &node,
        &["plan"],
        &[
            ALONE,
            "link set ens5 address 02:00:17:00:00:21 mtu 9000 up",
            "addr add 10.0.33.7/32 dev ens5",
            "route add default via 10.0.33.1 dev ens5 table 1000",
            "rule add pref 1537 from 10.0.33.7 lookup 1000",
            "pools.json: 1 VNIC(s), 16 address(es)",
        ],
    );
    says(&node, &["status"], &[ALONE, "not running", "ens5", "us-ashburn-1"]);
    let (ok, text) = node.run(&["pools"]);
    assert!(!ok && text.contains("the node agent has not written them yet"), "{text}");
    assert_eq!(node.rules(vcn::Family::Ipv4), [""; 0]);
}

#[test]
fn plan_without_agent_waits_for_a_slow_plugin() {
    let (node, agent) = Node::with_pods().with_agent(&[]);
    agent.stop();
    std::fs::remove_file(node.path("net.d").join(vcn::CONFLIST_FILE)).unwrap();
    hangs(&node);
    let written = format!("/etc/cni/net.d/{}", vcn::CONFLIST_FILE);
    says(&node, &["plan"], &[ALONE, &written]);
    says(&node, &["status"], &[ALONE, "portmap is left out of the chain until it answers: no answer within 2s"]);
}

#[test]
fn status_without_agent_reports_a_metadata_outage() {
    let node = Node::with_pods();
    node.metadata.set_status(400);
    says(&node, &["status"], &[ALONE, "BLOCKING MetadataUnavailable", "status 400"]);
}
