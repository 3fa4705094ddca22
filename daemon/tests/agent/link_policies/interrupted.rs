//! Agents that are killed in a change: the next one restores the link before anything else, from the journal alone.

use std::fs;
use std::path::PathBuf;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::leader::{Leader, policy};
use super::{mtu, scene, shown, wait_state};
use crate::node::Node;
use crate::running::{Agent, at_once, wait_for};

/// When the agent is killed.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The journal is written.
    Journaled,
    /// The MTU is changed.
    Changed,
    /// The probes passed, and no request of the leader arrived.
    Probed,
    /// The same, and another program removed addresses and routes.
    Probed1200,
    /// The same as `Probed`, in an earlier boot.
    EarlierBoot,
}

fn journal(node: &Node) -> PathBuf {
    node.path("lib/link-journal.json")
}

fn unfinished(node: &Node) -> Value {
    let text = fs::read_to_string(journal(node)).unwrap_or_default();
    serde_json::from_str::<Value>(&text).unwrap_or_default()["unfinished"].clone()
}

fn kill_at(step: Step, node: &Node, leader: &Leader, agent: &Agent) {
    let document = policy("Apply", json!({"mtu": 9000}));
    leader.send_while(&document, || {
        leader.pause();
        wait_for("the journal", || unfinished(node).is_object(), || agent.log());
        if !matches!(step, Step::Journaled) {
            wait_for("the change", || mtu(node) == 9000, || agent.log());
        }
        if matches!(step, Step::Probed | Step::Probed1200 | Step::EarlierBoot) {
            wait_for("the probes", || agent.events("policy.link_probed").len() == 1, || agent.log());
        }
        agent.signal(Signal::SIGKILL);
    });
}

#[test]
fn killed_agents_change_is_restored_by_the_next_one() {
    let steps = [Step::Journaled, Step::Changed, Step::Probed, Step::Probed1200, Step::EarlierBoot];
    at_once(steps, |step| {
        let (node, leader) = scene(1500);
        let agent = leader.agent(&node);
        let before = shown(&node);
        kill_at(step, &node, &leader, &agent);
        drop(agent);
        match step {
            Step::Probed1200 => drop(node.sh("ip link set ens3 mtu 1200; ip route flush dev ens3 proto dhcp")),
            Step::EarlierBoot => {
                let text = fs::read_to_string(journal(&node)).unwrap();
                let mut earlier: Value = serde_json::from_str(&text).unwrap();
                earlier["unfinished"]["bootId"] = json!("01234567-89ab-4cde-8fab-0123456789ab");
                fs::write(journal(&node), earlier.to_string()).unwrap();
            }
            _ => {}
        }
        // Nothing else is read: neither the document nor the record of earlier values.
        fs::remove_file(node.path("lib/node-policy.json")).unwrap();
        let _ = fs::remove_file(node.path("lib/sysctls.json"));
        let agent = leader.agent(&node);
        wait_for(
            "all as before",
            || shown(&node) == before,
            || format!("{step:?}: {}\n{before}\n{}", shown(&node), agent.log()),
        );
        assert_eq!((unfinished(&node), agent.events("policy.link_recovered").len()), (Value::Null, 1), "{step:?}");
        leader.resume();
        leader.send(&policy("Apply", json!({"mtu": 9000})));
        wait_state(&leader, &agent, "applied");
        assert_eq!(mtu(&node), 9000, "{step:?}");
    });
}

/// A driver may take its link away for longer than one attempt, and a node that is cut off gets no document.
#[test]
fn restore_that_fails_is_tried_again_without_a_document() {
    let (node, leader) = scene(1500);
    let agent = leader.agent(&node);
    let before = shown(&node);
    kill_at(Step::Changed, &node, &leader, &agent);
    drop(agent);
    fs::remove_file(node.path("lib/node-policy.json")).unwrap();
    node.sh("ip link set ens3 down; ip link set ens3 name away");
    let container = node.container().with_config_map(api::CONTROLLER_KEYS, &node.path("keys"));
    let agent = node.start(container, &["--node-ip", "10.0.10.7"]);
    wait_for("a failed restore", || !agent.events("policy.link_not_restored").is_empty(), || agent.log());
    assert!(unfinished(&node).is_object(), "the only copy of addresses and routes: {}", agent.log());
    node.sh("ip link set away name ens3; ip link set ens3 up");
    wait_for("all as before", || shown(&node) == before, || format!("{}\n{before}\n{}", shown(&node), agent.log()));
    wait_for("the end of the change", || unfinished(&node).is_null(), || agent.log());
}

/// Before it ends: a node that is cut off gets no other agent.
#[test]
fn change_of_an_agent_that_ends_is_undone() {
    let (node, leader) = scene(1500);
    let agent = leader.agent(&node);
    let before = shown(&node);
    leader.send_while(&policy("Apply", json!({"mtu": 9000})), || {
        leader.pause();
        wait_for("the probes", || agent.events("policy.link_probed").len() == 1, || agent.log());
    });
    agent.stop();
    assert_eq!((mtu(&node), unfinished(&node)), (1500, Value::Null));
    assert_eq!(shown(&node), before);
}
