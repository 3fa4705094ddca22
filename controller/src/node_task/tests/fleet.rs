//! Tasks of many nodes: each has the action once, whatever happens to the leader.

use api::node_task::{TaskCounts, TaskState};
use api::{Reason as _, TaskReason};
use serde_json::json;

use super::world::{Cluster, at, node, selecting};

fn counts(matched: u32, succeeded: u32, failed: u32, skipped: u32, late: u32) -> Option<TaskCounts> {
    Some(TaskCounts { matched, succeeded, failed, skipped, late })
}

#[test]
fn hundred_nodes_have_the_action_once_in_order_of_names() {
    let mut cluster = Cluster::new(100, selecting(json!({ "concurrency": 16 })));
    cluster.run(1000);
    let status = cluster.status();
    assert_eq!((status.state, status.nodes), (Some(TaskState::Succeeded), counts(100, 100, 0, 0, 0)));
    assert_eq!(cluster.most, 16);
    assert!(cluster.created.values().all(|count| *count == 1) && cluster.pods.is_empty());
    let mut names: Vec<String> = cluster.nodes.iter().map(|node| node.name.clone()).collect();
    names.sort();
    assert_eq!(cluster.order, names);
    assert_eq!((status.created_by.as_str(), status.conditions[0].kind.as_str()), ("alice", "Complete"));
    assert_eq!(status.message, "100 of 100 succeeded, 0 failed, 0 skipped");
}

#[test]
fn no_node_has_the_action_twice_when_leaders_are_killed() {
    // Three calls and a write, with room, are the least that a leader needs to get further.
    for kill_every in 9..40 {
        let mut cluster =
            Cluster::new(100, selecting(json!({ "concurrency": 3, "deadlineMinutes": 180 }))).killing_every(kill_every);
        cluster.run(20_000);
        assert_eq!(cluster.status().nodes, counts(100, 100, 0, 0, 0), "killed after each {kill_every}");
        assert!(cluster.created.len() == 100 && cluster.created.values().all(|count| *count == 1), "{kill_every}");
        assert!(cluster.pods.is_empty() && cluster.most <= 3, "{kill_every}");
    }
}

#[test]
fn node_that_matches_later_is_skipped_and_counted() {
    let mut cluster = Cluster::new(10, selecting(json!({}))).killing_every(9);
    let relabeled = [node(204), node(904)];
    cluster.run(6);
    assert_eq!(cluster.state(), Some(TaskState::Running));
    // Two get the label later, one is created, one of the matched is created again, one is deleted.
    cluster.nodes.extend(relabeled);
    let mut created = node(905);
    created.created = Some(at(5));
    cluster.nodes.push(created);
    let again = cluster.nodes.iter_mut().find(|node| node.name == "10.0.0.8").unwrap();
    again.uid = Some("another".to_owned());
    cluster.nodes.retain(|node| node.name != "10.0.0.9");
    cluster.run(1000);
    let status = cluster.status();
    assert_eq!((status.state, status.nodes), (Some(TaskState::Succeeded), counts(10, 8, 0, 6, 4)));
    let names: Vec<&str> = cluster.created.keys().map(String::as_str).collect();
    assert!(names.len() == 8 && !names.contains(&"10.0.0.8") && !names.contains(&"10.0.2.4"), "{names:?}");
}

#[test]
fn too_many_failures_start_no_further_node() {
    let mut cluster = Cluster::new(20, selecting(json!({ "maxFailures": 1 })));
    cluster.failing = ["10.0.0.0", "10.0.0.11", "10.0.0.2"].map(str::to_owned).into();
    cluster.run(1000);
    let status = cluster.status();
    assert_eq!((status.state, status.reason.as_str()), (Some(TaskState::Failed), "TooManyFailures"));
    let failed: Vec<&str> = status.failures.iter().map(|failure| failure.node.as_str()).collect();
    assert_eq!(failed, ["10.0.0.0", "10.0.0.11"]);
    assert_eq!(status.failures[0].reason, "NotGrown");
    assert!(cluster.pods.is_empty() && status.nodes.unwrap().succeeded < 18);
}

/// Many tasks that started in the same step: only so many have an effect.
#[test]
fn started_task_without_a_slot_has_no_effect() {
    let mut cluster = Cluster::new(3, selecting(json!({})));
    cluster.run(2);
    cluster.has_slot = false;
    cluster.run(20);
    assert!(cluster.created.is_empty(), "{:?}", cluster.status());
    assert!(cluster.status().message.contains("the maximum number of tasks is running"));
    cluster.has_slot = true;
    cluster.run(100);
    assert_eq!(cluster.status().nodes, counts(3, 3, 0, 0, 0));
}

#[test]
fn stop_switch_starts_no_further_node() {
    let mut cluster = Cluster::new(10, selecting(json!({ "concurrency": 2 })));
    cluster.run(5);
    cluster.stopped = Some("alice: an incident");
    cluster.run(50);
    let (before, status) = (cluster.created.len(), cluster.status());
    assert_eq!((status.state, status.reason.as_str()), (Some(TaskState::Stopped), TaskReason::StopSwitch.as_str()));
    assert!(before < 10 && cluster.pods.is_empty(), "what began is ended");
    cluster.run(50);
    assert_eq!(cluster.created.len(), before);
    cluster.stopped = None;
    cluster.run(100);
    assert_eq!(cluster.status().nodes, counts(10, 10, 0, 0, 0));
}
