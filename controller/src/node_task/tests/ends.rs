//! Tasks that do nothing, end early, or are deleted.

use std::collections::BTreeMap;

use api::node_task::TaskState;
use api::{NodeTaskStatus, TASK_FINALIZER};
use k8s_openapi::jiff::SignedDuration;
use serde_json::json;

use super::world::{Cluster, at, selecting};
use crate::cluster::store::StoreUpdate;
use crate::node_task::action::EnabledActions;
use crate::node_task::ages::Ages;
use crate::node_task::memory::Memory;
use crate::node_task::objects::{TaskObjects, bounded};
use crate::node_task::occupancy::Occupancy;
use crate::node_task::plan::{BusyNodes, FinalizerChange, TaskInput, World, leftovers, plan};
use crate::node_task::results::TaskClock;
use crate::node_task::selection::NodesByName;

fn single() -> serde_json::Value {
    json!({ "node": "10.0.0.1", "action": { "restartUnit": { "unit": "crio.service" } } })
}

fn end(cluster: &Cluster) -> (Option<TaskState>, String) {
    let status = cluster.status();
    (status.state, status.reason)
}

#[test]
fn task_that_is_not_enabled_is_refused_with_the_key() {
    let mut cluster = Cluster::new(3, single());
    cluster.enabled = EnabledActions::default();
    cluster.run(3);
    assert_eq!(end(&cluster), (Some(TaskState::Refused), "NotEnabled".to_owned()));
    assert!(cluster.status().message.contains("tasks") && cluster.task.metadata.finalizers.is_none());
    let mut cluster = Cluster::new(3, json!({ "node": "10.0.0.1", "action": { "reboot": {} } }));
    cluster.enabled = EnabledActions { is_any: true, is_reboot: false };
    cluster.run(3);
    assert!(cluster.status().message.contains("reboot"), "{}", cluster.status().message);
    assert_eq!(end(&cluster).1, "NotEnabled");
}

#[test]
fn task_without_a_node_is_refused() {
    let none = selecting(json!({ "nodeSelector": { "matchLabels": { "pool": "db" } } }));
    for spec in [none, json!({ "node": "gone", "action": { "growRootDisk": {} } })] {
        let mut cluster = Cluster::new(3, spec);
        cluster.run(3);
        assert_eq!(end(&cluster), (Some(TaskState::Refused), "NoNodes".to_owned()));
    }
}

#[test]
fn task_that_did_not_begin_within_a_day_fails() {
    let mut cluster = Cluster::new(3, single());
    cluster.now = at(86_400);
    cluster.run(1);
    assert_eq!(end(&cluster), (Some(TaskState::Failed), "Outdated".to_owned()), "no controller ran");
    let mut cluster = Cluster::new(3, single());
    cluster.stopped = Some("an incident");
    cluster.run(3);
    assert_eq!(end(&cluster).0, Some(TaskState::Stopped));
    cluster.now = at(86_401);
    cluster.stopped = None;
    cluster.run(10);
    assert_eq!(end(&cluster), (Some(TaskState::Failed), "Outdated".to_owned()));
    assert!(cluster.created.is_empty());
}

#[test]
fn node_that_takes_too_long_fails_with_what_it_waited_for() {
    let mut cluster = Cluster::new(3, single());
    cluster.hanging = ["10.0.0.1".to_owned()].into();
    cluster.run(300);
    let status = cluster.status();
    assert_eq!(end(&cluster), (Some(TaskState::Failed), "DeadlineExceeded".to_owned()));
    assert_eq!(status.message, "Operating: its Pod runs");
    assert!(cluster.pods.is_empty() && status.conditions[0].kind == "Failed");
}

/// The clock of a settled leader jumps.
#[test]
fn jump_of_the_clock_ends_no_running_node_and_deletes_no_task() {
    let mut cluster = Cluster::new(3, single());
    (cluster.hanging, cluster.ages) = (["10.0.0.1".to_owned()].into(), Some(Ages::default()));
    cluster.run(6);
    cluster.now += SignedDuration::from_hours(30);
    cluster.run(20);
    assert_eq!(cluster.state(), Some(TaskState::Running), "{:?}", cluster.status());
    let mut cluster = Cluster::new(3, selecting(json!({ "ttlSecondsAfterFinished": 3600 })));
    cluster.ages = Some(Ages::default());
    cluster.run(1000);
    cluster.step_once();
    cluster.now += SignedDuration::from_hours(3);
    cluster.step_once();
    assert!(cluster.status().is_final() && !cluster.is_gone);
}

#[test]
fn deleted_task_is_undone_before_it_goes() {
    let mut cluster = Cluster::new(3, single());
    cluster.hanging = ["10.0.0.1".to_owned()].into();
    cluster.run(6);
    assert!(!cluster.pods.is_empty());
    cluster.delete();
    // A new leader has undone nothing yet.
    cluster.step_once();
    assert!(!cluster.is_gone && cluster.task.metadata.finalizers.is_some());
    cluster.run(5);
    assert!(cluster.is_gone && cluster.pods.is_empty());
    assert_eq!(cluster.created["10.0.0.1"], 1);
}

#[test]
fn status_of_another_program_repeats_no_action() {
    for status in [
        json!({ "state": "Running", "startTime": "2026-11-29T00:00:00Z" }),
        json!({ "state": "Running", "cursor": 7, "startTime": "2026-11-29T00:00:00Z" }),
        json!({ "state": "Running", "cursor": "10.0.0.1", "running": [{ "node": 7 }] }),
        json!({ "state": "Moon" }),
        json!({ "cursor": "10.0.0.1" }),
    ] {
        let mut cluster = Cluster::new(3, single());
        cluster.write_status(status.clone());
        cluster.run(10);
        assert_eq!(end(&cluster), (Some(TaskState::Refused), "Unreadable".to_owned()), "{status}");
        assert!(cluster.created.is_empty());
    }
}

#[test]
fn single_node_that_was_created_again_is_not_touched() {
    let mut cluster = Cluster::new(3, single());
    cluster.stopped = Some("an incident");
    cluster.run(3);
    cluster.nodes[1].uid = Some("another".to_owned());
    cluster.stopped = None;
    cluster.run(10);
    assert_eq!(end(&cluster), (Some(TaskState::Failed), "Replaced".to_owned()));
    assert!(cluster.created.is_empty());
}

/// A leader that was paused keeps nothing of what it wrote before another leader did.
#[test]
fn status_of_another_leader_counts_before_the_own_one() {
    let object = |version: &str, cursor: &str| -> api::NodeTask {
        let metadata = json!({ "name": "t", "uid": "u", "resourceVersion": version });
        serde_json::from_value(
            json!({ "metadata": metadata, "spec": single(), "status": { "state": "Running", "cursor": cursor } }),
        )
        .unwrap()
    };
    let mut memory = Memory::default();
    let own = NodeTaskStatus { cursor: "own".to_owned(), ..NodeTaskStatus::default() };
    memory.note_written(&object("5", ""), own, Some("9".to_owned()));
    let cursor = |memory: &Memory, object: &api::NodeTask| {
        memory.status(object).map(|status| status.unwrap().cursor.clone()).ok()
    };
    assert_eq!(cursor(&memory, &object("5", "old")).as_deref(), Some("own"));
    assert_eq!(cursor(&memory, &object("8", "late event")).as_deref(), Some("own"), "the watch is behind");
    assert_eq!(memory.version(&object("8", "")).as_deref(), Some("9"));
    assert_eq!(cursor(&memory, &object("12", "other")).as_deref(), Some("other"), "another leader wrote");
    assert_eq!(memory.version(&object("12", "")).as_deref(), Some("12"));
    memory.note_conflict(&object("12", ""));
    assert_eq!(cursor(&memory, &object("12", "other")), None);
    assert_eq!(cursor(&memory, &object("13", "newer")).as_deref(), Some("newer"));
}

/// A task whose unit or field only a later version knows: its node is busy, and nothing keeps the object.
#[test]
fn unreadable_task_keeps_its_node_busy_and_is_undone_when_deleted() {
    let mut objects = TaskObjects::default();
    let mut deliver = |deletion: Option<&str>| {
        let running = json!([{ "node": "10.0.0.1", "step": "Creating", "since": "2026-11-29T00:00:00Z" }]);
        let metadata = json!({ "name": "later", "uid": "u", "resourceVersion": "7", "finalizers": [TASK_FINALIZER],
            "deletionTimestamp": deletion });
        let later = json!({ "metadata": metadata, "spec": { "node": "10.0.0.1", "action": { "restartUnit": { "unit": "later.service" } } },
            "status": { "state": "Running", "cursor": "10.0.0.1", "running": running } });
        let received = bounded(serde_json::from_value(later).unwrap());
        assert!(received.0.is_err());
        objects.take(StoreUpdate::One(received));
        objects.by_age().remove(0)
    };
    let object = deliver(None);
    let mut occupancy = Occupancy::default();
    occupancy.note(&object, object.status.as_ref());
    assert_eq!(occupancy.nodes["10.0.0.1"], [("u".to_owned(), "later".to_owned())]);
    let plan = |object: &api::NodeTask, is_undone| {
        let (outcomes, busy) = (BTreeMap::new(), BusyNodes::new());
        let world = World {
            nodes: &NodesByName::default(),
            enabled: EnabledActions { is_any: true, is_reboot: true },
            stopped: None,
            times: TaskClock { now: at(200_000), ages: &Ages::default() },
            is_settled: true,
            busy: &busy,
            has_slot: true,
        };
        plan(&TaskInput { object, status: object.status.as_ref(), outcomes: &outcomes, is_undone }, &world)
    };
    let kept = plan(&object, true);
    assert!(kept.status.is_none() && kept.finalizer.is_none() && !kept.is_expired, "{kept:?}");
    let deleted = deliver(Some("2026-11-29T00:00:00Z"));
    let left = leftovers(&deleted, deleted.status.as_ref());
    assert_eq!(left.iter().map(|it| it.node.as_str()).collect::<Vec<_>>(), ["10.0.0.1"]);
    assert_eq!(plan(&deleted, false).finalizer, None);
    assert_eq!(plan(&deleted, true).finalizer, Some(FinalizerChange::Remove));
}
