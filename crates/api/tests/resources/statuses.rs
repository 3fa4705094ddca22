//! Bounds of statuses: agents and the controller write them, and a rogue token must not write what no program can read.

use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::cluster::{api, client, typed};
use crate::sample::{attachment, network_test, node_task, ocid, profile};

/// Numbers and texts that no status has, for fields that are numbers or texts.
fn numbers() -> Vec<Value> {
    vec![
        json!(-1),
        json!(1_000_000_000_000_000_000_u64),
        json!(1e16),
        json!(1e300),
        json!(0.5),
        json!("1"),
        json!(true),
    ]
}

fn texts(longest: usize) -> Vec<Value> {
    let long = "x".repeat(longest + 1);
    let texts = ["a\nb", "\u{1b}[2J", "\u{7f}", "\u{9b}2J", "a\u{200b}b", "\u{202e}txt", "\u{2028}", "\u{feff}", &long];
    texts.into_iter().map(|text| json!(text)).chain([json!(7), json!({}), json!(["a"])]).collect()
}

fn condition(field: &str, value: &Value) -> Value {
    let mut condition = json!({ "type": "Ready", "status": "True", "reason": "Ready", "message": "a",
        "lastTransitionTime": "2026-01-01T00:00:00Z" });
    condition[field] = value.clone();
    json!({ "conditions": [condition] })
}

fn node(field: &str, value: &Value) -> Value {
    let mut report = json!({ "configured": true, "inUse": 1, "generation": 1, "reason": "LinkMissing" });
    report[field] = value.clone();
    json!({ "node": report })
}

fn of(field: &str, value: &Value) -> Value {
    json!({ field: value })
}

fn worst(field: &str, value: &Value) -> Value {
    let mut pair = json!({ "source": "a", "target": "b", "probe": "ICMP", "label": "Proven", "cause": "RouteTable" });
    pair[field] = value.clone();
    json!({ "worst": [pair] })
}

fn counts(part: &str, fields: &[&str], field: &str, value: &Value) -> Value {
    let mut all: Value =
        fields.iter().map(|field| ((*field).to_owned(), json!(1))).collect::<serde_json::Map<_, _>>().into();
    all[field] = value.clone();
    json!({ part: all })
}

fn element(list: &str, field: &str, value: &Value) -> Value {
    let mut element = json!({ "node": "a", "step": "Started", "reason": "NotStarted" });
    element[field] = value.clone();
    json!({ list: [element] })
}

fn all(values: Vec<Value>, make: &dyn Fn(&Value) -> Value) -> Vec<Value> {
    values.iter().map(make).collect()
}

fn wrong_of_task() -> Vec<Value> {
    let mut found = Vec::new();
    let fields = ["matched", "succeeded", "failed", "skipped"];
    for field in fields {
        found.extend(all(numbers(), &|value| counts("nodes", &fields, field, value)));
    }
    let texts_of =
        [("state", 0), ("reason", 32), ("message", 160), ("cursor", 253), ("selected", 352), ("createdBy", 64)];
    for (field, longest) in texts_of {
        found.extend(all(texts(longest), &|value| of(field, value)));
    }
    for (field, longest) in [("node", 253), ("step", 24), ("before", 64), ("instance", 128)] {
        found.extend(all(texts(longest), &|value| element("running", field, value)));
    }
    for (field, longest) in [("node", 253), ("reason", 32), ("message", 160)] {
        found.extend(all(texts(longest), &|value| element("failures", field, value)));
    }
    found.push(json!({ "running": vec![json!({ "node": "a", "step": "Started" }); 17] }));
    found
}

/// Statuses of a kind that are refused.
fn wrong(kind: &str) -> Vec<Value> {
    let addresses =
        || vec![json!(["10.0.0"]), json!(["::ffff:10.0.0.1"]), json!(["\n"]), json!([7]), json!("10.0.0.1")];
    let mut found = Vec::new();
    if kind == "VnicAttachment" || kind == "VnicProfile" {
        found.extend(all(numbers(), &|value| of("observedGeneration", value)));
    }
    if kind != "NetworkTest" {
        for (field, longest) in [("type", 32), ("status", 8), ("reason", 64), ("message", 160)] {
            found.extend(all(texts(longest), &|value| condition(field, value)));
        }
        found.extend(all(vec![json!("yesterday"), json!(0)], &|value| condition("lastTransitionTime", value)));
    }
    match kind {
        "VnicAttachment" => {
            found.push(node("inUse", &json!(1_000_000_000_000_000_u64)));
            for field in ["inUse", "generation"] {
                found.extend(all(numbers(), &|value| node(field, value)));
            }
            found.extend(all(texts(32), &|value| node("reason", value)));
            found.extend(all(vec![json!("yes"), json!(1)], &|value| node("configured", value)));
            found.extend(all(texts(64), &|value| of("nodeName", value)));
            found.extend(all(texts(128), &|value| of("vnicId", value)));
            found.extend(all(vec![json!("vnic"), json!(ocid("subnet", 1))], &|value| of("vnicId", value)));
            found.extend(all(addresses(), &|value| of("ownAddresses", value)));
            found.extend(all(addresses(), &|value| of("podAddresses", value)));
        }
        "VnicProfile" => {
            let fields = ["matched", "attached", "ready", "failed"];
            for field in fields {
                found.extend(all(numbers(), &|value| counts("summary", &fields, field, value)));
            }
            found.extend(all(texts(253), &|value| json!({ "failingNodes": [value] })));
        }
        "NodeTask" => found.extend(wrong_of_task()),
        _ => {
            let of_counts = ["pairs", "tested", "failed", "unknown", "sent", "lost"];
            let latency = ["p50Micros", "p90Micros", "p99Micros"];
            let throughput = ["leastMegabitsPerSecond", "medianMegabitsPerSecond"];
            for (part, fields) in
                [("counts", &of_counts[..]), ("latency", &latency[..]), ("throughput", &throughput[..])]
            {
                for field in fields {
                    found.extend(all(numbers(), &|value| counts(part, fields, field, value)));
                }
            }
            for (field, longest) in [("message", 256), ("worstVerdict", 160), ("path", 192), ("state", 0)] {
                found.extend(all(texts(longest), &|value| of(field, value)));
            }
            for field in
                ["source", "target", "probe", "label", "cause", "failure", "lastSeen", "before", "after", "fix"]
            {
                found.extend(all(texts(160), &|value| worst(field, value)));
            }
        }
    }
    found
}

/// Statuses of a kind as they are written.
fn sound(kind: &str) -> Vec<Value> {
    match kind {
        "VnicAttachment" => vec![
            node("inUse", &json!(u32::MAX)),
            node("reason", &Value::Null),
            node("reason", &json!("")),
            node("generation", &json!((1_i64 << 53) - 1)),
            condition("message", &json!("größer <b> “10” 可")),
            json!({ "vnicId": ocid("vnic", 1), "nodeName": "10.0.0.2", "observedGeneration": 3,
                "ownAddresses": ["10.0.32.2", "2603:c020:0:2::2"], "podAddresses": ["10.0.32.3"] }),
        ],
        "VnicProfile" => vec![json!({ "failingNodes": ["10.0.0.2"], "observedGeneration": 0,
            "summary": { "matched": 10_000, "attached": 0, "ready": 0, "failed": 1 } })],
        "NodeTask" => vec![
            element("running", "before", &json!("8f3c9f0e-1c50-4f5e-9d64-000000000000")),
            json!({ "state": "Running", "cursor": "10.0.10.2", "startTime": "2026-01-01T00:00:00Z",
                "running": vec![json!({ "node": "a", "step": "Started", "since": "2026-01-01T00:00:00Z" }); 16] }),
        ],
        _ => vec![
            worst("fix", &json!("Allow the port → both ways.")),
            json!({ "message": "a", "path": "10.0.0.2 (ens3) → 10.0.0.3", "latency": { "p50Micros": 0, "p90Micros": 1,
                "p99Micros": u32::MAX } }),
        ],
    }
}

#[tokio::test]
async fn status_with_a_number_or_text_out_of_bounds_is_refused() {
    let client = client().await;
    for object in [attachment("statuses"), profile("statuses"), network_test("statuses"), node_task("statuses")] {
        let kind = object["kind"].as_str().unwrap();
        let objects = api(&client, kind);
        objects.create(&PostParams::default(), &typed(&object)).await.unwrap();
        let dry = PatchParams { dry_run: true, ..PatchParams::default() };
        let write = async |status: &Value| {
            let patch = Patch::Merge(json!({ "status": status }));
            objects.patch_status("statuses", &dry, &patch).await.map(drop)
        };
        for status in sound(kind) {
            write(&status).await.unwrap();
        }
        for status in wrong(kind) {
            match write(&status).await {
                Err(kube::Error::Api(refusal)) if refusal.code == 422 => {}
                other => panic!("{kind} {status}: {other:?}"),
            }
        }
        objects.delete("statuses", &Default::default()).await.unwrap();
    }
}
