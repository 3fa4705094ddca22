//! The rules of NodeTask, and its size: 4 KB in etcd with the largest status, 2 KB of a capture.

use api::node_task::{FAILURES_MAX, FailedNode, OBJECT_MAX, RunningNode, TaskCounts, TaskState};
use api::{Condition, ConditionType, NodeTask, NodeTaskStatus, TaskReason};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::cluster::{Complaint, api, client, server, try_create, try_replace, typed};
use crate::sample::{node_task, with};

const HASH: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

fn action(action: Value) -> Value {
    with(node_task("task"), json!({ "action": action }))
}

fn capture(mut capture: Value) -> Value {
    capture["tokenHash"] = json!(HASH);
    action(json!({ "capture": capture }))
}

fn packets(packets: Value) -> Value {
    capture(json!({ "packets": packets }))
}

fn selecting(spec: Value) -> Value {
    let selector = json!({ "node": null, "nodeSelector": { "matchLabels": { "pool": "web" } } });
    with(with(node_task("task"), selector), spec)
}

#[tokio::test]
async fn node_task_accepts_each_action() {
    let client = client().await;
    for object in [
        node_task("a"),
        action(json!({ "restartUnit": { "unit": "kubelet.service" } })),
        action(json!({ "restartUnit": { "unit": "oracle-cloud-agent.service" } })),
        action(json!({ "growRootDisk": {} })),
        action(json!({ "reboot": {} })),
        action(json!({ "reboot": { "drainMinutes": 120 } })),
        capture(json!({ "state": true })),
        packets(json!({})),
        packets(json!({ "seconds": 300, "sizeMiB": 64, "protocol": "TCP", "host": "fd00::1", "port": 65535,
            "interface": "ens3", "payload": true })),
        capture(json!({ "logs": { "units": ["kubelet.service", "run-u1.scope", "getty@tty1.service"], "hours": 24 } })),
        selecting(json!({ "concurrency": 16, "maxFailures": 1000, "deadlineMinutes": 180 })),
        selecting(json!({ "action": { "growRootDisk": {} }, "ttlSecondsAfterFinished": 0 })),
    ] {
        let accepted = try_create(&client, &object).await;
        assert!(accepted.is_ok(), "{object}: {:?}", accepted.err());
    }
}

/// Objects that break a rule: the field and the rule's words, which are empty for the schema's own bounds.
fn broken() -> Vec<(Value, &'static str, &'static str)> {
    let spec = |spec: Value| with(node_task("task"), spec);
    let needs = "a task needs node, or a nodeSelector with a label or an expression";
    let one = "needs exactly one of restartUnit, growRootDisk, reboot and capture";
    let single = "reboot and capture are for one node: name it in node";
    let logs = |units: Value| capture(json!({ "logs": { "units": units } }));
    let mut named = node_task("x");
    named["metadata"]["name"] = json!("x.y");
    vec![
        (named, "", "a NodeTask's name is a DNS label"),
        (spec(json!({ "node": null })), "spec.nodeSelector", needs),
        (selecting(json!({ "node": "a" })), "spec.nodeSelector", needs),
        (spec(json!({ "nodeSelector": {} })), "spec.nodeSelector", needs),
        (spec(json!({ "node": null, "nodeSelector": {} })), "spec.nodeSelector", needs),
        (
            spec(json!({ "node": null, "nodeSelector": labels(4) })),
            "spec.nodeSelector",
            "is too large: names and values of a nodeSelector take at most 256 characters",
        ),
        (selecting(json!({ "action": { "reboot": {} } })), "spec.nodeSelector", single),
        (
            selecting(json!({ "action": { "capture": { "tokenHash": HASH, "state": true } } })),
            "spec.nodeSelector",
            single,
        ),
        (action(json!({})), "spec.action", one),
        (action(json!({ "growRootDisk": {}, "reboot": {} })), "spec.action", one),
        (action(json!({ "restartUnit": { "unit": "sshd.service" } })), "spec.action.restartUnit.unit", ""),
        (action(json!({ "reboot": { "drainMinutes": 121 } })), "spec.action.reboot.drainMinutes", ""),
        (
            with(action(json!({ "reboot": {} })), json!({ "deadlineMinutes": 60 })),
            "spec.deadlineMinutes",
            "is not for reboot, which has drainMinutes and then at least 30 minutes to become healthy",
        ),
        (
            with(action(json!({ "growRootDisk": {} })), json!({ "deadlineMinutes": 14 })),
            "spec.deadlineMinutes",
            "is at least 15 for growRootDisk, which must not be interrupted",
        ),
        (capture(json!({})), "spec.action.capture", "needs state: true, packets or logs"),
        (capture(json!({ "state": false })), "spec.action.capture", "needs state: true, packets or logs"),
        (action(json!({ "capture": { "state": true, "tokenHash": "A" } })), "spec.action.capture.tokenHash", ""),
        (packets(json!({ "port": 53 })), "spec.action.capture.packets.port", "port needs protocol TCP or UDP"),
        (
            packets(json!({ "port": 53, "protocol": "ICMP" })),
            "spec.action.capture.packets.port",
            "port needs protocol TCP or UDP",
        ),
        (packets(json!({ "seconds": 301 })), "spec.action.capture.packets.seconds", ""),
        (packets(json!({ "sizeMiB": 65 })), "spec.action.capture.packets.sizeMiB", ""),
        (packets(json!({ "interface": "ens*" })), "spec.action.capture.packets.interface", ""),
        (packets(json!({ "host": "10.0.0" })), "spec.action.capture.packets.host", "must be an IPv4 or IPv6 address"),
        (logs(json!([])), "spec.action.capture.logs.units", ""),
        (logs(json!(["--all.service"])), "spec.action.capture.logs.units", ""),
        (logs(json!(["a/../b.service"])), "spec.action.capture.logs.units", ""),
        (logs(json!(["kubelet"])), "spec.action.capture.logs.units", ""),
        (spec(json!({ "concurrency": 17 })), "spec.concurrency", ""),
        (spec(json!({ "concurrency": 0 })), "spec.concurrency", ""),
        (spec(json!({ "deadlineMinutes": 181 })), "spec.deadlineMinutes", ""),
        (spec(json!({ "ttlSecondsAfterFinished": 86401 })), "spec.ttlSecondsAfterFinished", ""),
    ]
}

const FINISHED: &str = "a finished NodeTask stays finished: create another one";
const FIXED: &str = "cannot be changed: create another NodeTask";

/// The rules that are tried here.
pub(crate) fn tried() -> Vec<Complaint> {
    let rules = broken().into_iter().filter(|(_, _, words)| !words.is_empty());
    let rules = rules.map(|(_, field, words)| (field.to_owned(), words.to_owned()));
    let values = "values are for In and NotIn, which need at least one";
    let rules = rules.chain([(String::new(), FINISHED.to_owned())]);
    rules
        .chain([
            ("spec".to_owned(), FIXED.to_owned()),
            ("spec.nodeSelector.matchExpressions[]".to_owned(), values.to_owned()),
        ])
        .collect()
}

#[tokio::test]
async fn node_task_that_breaks_a_rule_is_refused() {
    let client = client().await;
    for (object, field, words) in broken() {
        let complaints = try_create(&client, &object).await.unwrap_err();
        let refused = complaints.iter().any(|(at, message)| at.starts_with(field) && message.contains(words));
        assert!(refused, "{object}: {complaints:?}");
    }
}

#[tokio::test]
async fn spec_of_a_node_task_cannot_be_changed() {
    let client = client().await;
    for change in [
        json!({ "node": "10.0.10.3" }),
        json!({ "concurrency": 2 }),
        json!({ "action": { "reboot": {}, "restartUnit": null } }),
    ] {
        let complaints =
            try_replace(&client, &node_task("fixed"), &with(node_task("fixed"), change)).await.unwrap_err();
        assert!(complaints.iter().any(|(_, message)| message.contains(FIXED)), "{complaints:?}");
    }
}

#[tokio::test]
async fn finished_node_task_stays_finished() {
    let client = client().await;
    let tasks = api(&client, "NodeTask");
    tasks.create(&PostParams::default(), &typed(&node_task("finished"))).await.unwrap();
    let write = async |status: Value| {
        let patch = Patch::Merge(json!({ "status": status }));
        tasks.patch_status("finished", &PatchParams::default(), &patch).await
    };
    let entry = json!({ "node": "a", "step": "Ending" });
    write(json!({ "state": "Running", "running": [entry] })).await.unwrap();
    write(json!({ "state": "Failed", "message": "the end" })).await.unwrap();
    for again in
        [json!({ "state": "Running" }), json!({ "state": null }), Value::Null, json!({ "running": [entry, entry] })]
    {
        let refused = write(again.clone()).await.map(drop).unwrap_err();
        assert!(refused.to_string().contains(FINISHED), "{again}: {refused}");
    }
    write(json!({ "running": [] })).await.unwrap();
    tasks.delete("finished", &Default::default()).await.unwrap();
}

/// A selector with so many values of the greatest length.
fn labels(count: usize) -> Value {
    let values: Vec<String> = (0..count).map(|number| format!("{number:02}{}", "v".repeat(61))).collect();
    json!({ "matchExpressions": [{ "key": "pool", "operator": "In", "values": values }] })
}

/// Writes a status as the controller does, and returns the bytes in etcd.
async fn stored(object: &Value, status: NodeTaskStatus) -> usize {
    let client = client().await;
    let objects = api(&client, "NodeTask");
    objects.create(&PostParams::default(), &typed(object)).await.unwrap();
    let name = object["metadata"]["name"].as_str().unwrap();
    let read: NodeTask = serde_json::from_value(object.clone()).unwrap();
    let status = status.bounded(&read.spec);
    let patch = json!({ "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "NodeTask", "metadata": { "name": name }, "status": status });
    let params = PatchParams::apply(api::FIELD_MANAGER).force();
    objects.patch_status(name, &params, &Patch::Apply(&patch)).await.unwrap();
    let key = format!("/registry/{}/nodetasks/{name}", api::GROUP);
    server().await.stored(&key).await.unwrap().unwrap().len()
}

#[tokio::test]
async fn largest_node_task_takes_four_kilobytes_in_etcd() {
    let now = Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH);
    let spec = json!({ "node": null, "nodeSelector": labels(3), "concurrency": 16, "maxFailures": 1000,
        "deadlineMinutes": 180, "ttlSecondsAfterFinished": 86400 });
    let mut object = with(node_task(&"n".repeat(63)), spec);
    object["metadata"]["finalizers"] = json!([api::TASK_FINALIZER]);
    object["metadata"]["annotations"] = json!({ api::CREATED_BY_ANNOTATION: "u".repeat(64) });
    let running = |number: u8| RunningNode {
        node: format!("{number:02}{}", "a".repeat(62)),
        step: "Operating".to_owned(),
        since: Some(now.clone()),
        ..RunningNode::default()
    };
    let failed = FailedNode::new(&"b".repeat(64), TaskReason::DeadlineExceeded, &"<".repeat(500));
    let status = NodeTaskStatus {
        state: Some(TaskState::Running),
        reason: "TooManyFailures".to_owned(),
        message: "\"".repeat(160),
        cursor: "c".repeat(64),
        selected: "s".repeat(344),
        running: (0..16).map(running).collect(),
        nodes: Some(TaskCounts { matched: 10_000, succeeded: 9_000, failed: 1_000, skipped: 9_000, late: 9_000 }),
        failures: vec![failed; FAILURES_MAX],
        created_by: "u".repeat(64),
        start_time: Some(now.clone()),
        // A task that ended has no running node.
        ..NodeTaskStatus::default()
    };
    let bytes = stored(&object, status.clone()).await;
    assert!(bytes <= OBJECT_MAX, "{bytes} bytes");
    let read: NodeTask = serde_json::from_value(object).unwrap();
    assert_eq!(status.bounded(&read.spec).running.len(), 16, "a running node is never dropped");
}

#[tokio::test]
async fn largest_capture_takes_two_kilobytes_in_etcd() {
    let now = Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH);
    let units: Vec<String> = (0..8).map(|number| format!("{number}{}.service", "u".repeat(22))).collect();
    let mut object = capture(json!({ "state": true, "logs": { "units": units, "hours": 24 }, "packets": {
        "seconds": 300, "sizeMiB": 64, "protocol": "TCP", "host": "fd00:1111:2222:3333:4444:5555:6666:7777", "port": 65535,
        "interface": "abcdefghijklmno", "payload": true } }));
    object["metadata"]["name"] = json!("capture-10-0-10-123-x7f2k");
    object["metadata"]["finalizers"] = json!([api::TASK_FINALIZER]);
    object["metadata"]["annotations"] = json!({ api::CREATED_BY_ANNOTATION: "alice@example.com" });
    let status = NodeTaskStatus {
        state: Some(TaskState::Failed),
        reason: "CaptureLost".to_owned(),
        message: "m".repeat(160),
        cursor: "10.0.10.123".to_owned(),
        nodes: Some(TaskCounts { matched: 1, failed: 1, ..TaskCounts::default() }),
        created_by: "alice@example.com".to_owned(),
        start_time: Some(now.clone()),
        completion_time: Some(now.clone()),
        conditions: vec![Condition::new(ConditionType::Failed, TaskReason::CaptureLost, "", now)],
        ..NodeTaskStatus::default()
    };
    let bytes = stored(&object, status).await;
    assert!(bytes <= 2048, "{bytes} bytes");
}
