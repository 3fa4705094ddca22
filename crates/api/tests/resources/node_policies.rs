//! The rules of NodePolicy, and its size: 3 KiB of settings, and 9 KB in etcd with the largest status.

use api::node_policy::{CANARIES_MAX, FAILING_MAX, FailingNode, OBJECT_MAX, PolicyCounts, StableRevision};
use api::{Condition, NodePolicyStatus, NodeSettings};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::cluster::{Complaint, api, client, server, try_create, typed};
use crate::policy_files::{PATH, broken_files, broken_reservations, thresholds};
use crate::sample::{node_policy, with};

pub(crate) fn settings(settings: Value) -> Value {
    with(node_policy("policy"), json!({ "settings": settings }))
}

fn link(link: Value) -> Value {
    settings(json!({ "links": [link] }))
}

#[tokio::test]
async fn node_policy_accepts_each_kind_of_setting() {
    let client = client().await;
    for object in [
        node_policy("a"),
        settings(json!({ "transparentHugePages": { "enabled": "madvise" } })),
        link(json!({ "select": { "primary": true }, "mtu": 9000, "txQueueLength": 10000 })),
        link(json!({ "select": { "rdma": true }, "ring": { "rx": 8192, "tx": 8192 }, "channels": { "combined": 16 } })),
        link(json!({ "select": { "driver": "mlx5_core" }, "offloads": { "gro": true, "lro": false } })),
        link(
            json!({ "select": { "name": "ens*" }, "sysctls": { "ipv6.accept_ra": "0", "ipv4.neigh.gc_stale_time": "60" } }),
        ),
        link(json!({ "select": { "mac": "02:00:17:00:00:01" }, "mtu": 1500 })),
        with(node_policy("b"), json!({ "allNodes": null, "nodeSelector": { "matchLabels": { "pool": "web" } } })),
        with(node_policy("c"), json!({ "mode": "Apply", "priority": 1000, "paused": true, "onDelete": "Keep" })),
        with(
            node_policy("d"),
            json!({ "rollout": { "canary": { "nodes": 10, "soakSeconds": 60 }, "maxUnavailable": "5%", "soakSeconds": 15,
                "maxFailures": 9, "onFailure": "Hold" } }),
        ),
        with(node_policy("e"), json!({ "rollout": { "maxUnavailable": 3 } })),
        settings(
            json!({ "files": [{ "path": PATH, "content": "# tabs\tand \"quotes\"\nvm.swappiness = 10\n", "mode": "0600" }] }),
        ),
        settings(
            json!({ "kubelet": { "systemReserved": { "cpu": "500m", "pid": "1000" } }, "restart": ["kubelet.service"] }),
        ),
        settings(json!({ "kubelet": { "kubeReserved": { "memory": "1.5Gi" }, "evictionHard": thresholds() } })),
    ] {
        let accepted = try_create(&client, &object).await;
        assert!(accepted.is_ok(), "{object}: {:?}", accepted.err());
    }
}

/// Objects that break a rule: the field and the rule's words, which are empty for the schema's own bounds.
fn broken() -> Vec<(Value, &'static str, &'static str)> {
    let spec = |spec: Value| with(node_policy("policy"), spec);
    let select = |select: Value| link(json!({ "select": select, "mtu": 1500 }));
    let selector = "a policy needs a nodeSelector with a label or an expression, or allNodes: true";
    let exactly = "needs exactly one of primary: true, rdma: true, driver, name and mac";
    let mut long = node_policy("x");
    long["metadata"]["name"] = json!("x.y");
    vec![
        (long, "", "a NodePolicy's name is a DNS label"),
        (spec(json!({ "allNodes": null })), "spec.nodeSelector", selector),
        (spec(json!({ "nodeSelector": {}, "allNodes": false })), "spec.nodeSelector", selector),
        (spec(json!({ "nodeSelector": { "matchLabels": { "a": "b" } } })), "spec.nodeSelector", selector),
        (
            spec(json!({ "allNodes": null, "nodeSelector": labels(8) })),
            "spec.nodeSelector",
            "is too large: names and values of a nodeSelector take at most 512 characters",
        ),
        (spec(json!({ "priority": 1001 })), "spec.priority", ""),
        (spec(json!({ "mode": "Try" })), "spec.mode", ""),
        (spec(json!({ "rollout": { "maxUnavailable": "0%" } })), "spec.rollout.maxUnavailable", ""),
        (spec(json!({ "rollout": { "maxUnavailable": 0 } })), "spec.rollout.maxUnavailable", ""),
        (spec(json!({ "rollout": { "maxUnavailable": "101%" } })), "spec.rollout.maxUnavailable", ""),
        (
            settings(json!({})),
            "spec.settings",
            "needs sysctls, transparentHugePages, links, rootDisk, files or kubelet",
        ),
        (
            settings(filled(3100)),
            "spec.settings",
            "is too large: settings without files take at most 3072 bytes as JSON",
        ),
        (settings(json!({ "rootDisk": "Shrink" })), "spec.settings.rootDisk", ""),
        (
            settings(json!({ "sysctls": { "vm/swappiness": "1" } })),
            "spec.settings.sysctls",
            "a key is written with periods, such as vm.max_map_count",
        ),
        (settings(json!({ "sysctls": { "vm.swappiness": "1\n2" } })), "spec.settings.sysctls.vm.swappiness", ""),
        (
            settings(json!({ "transparentHugePages": { "enabled": "often" } })),
            "spec.settings.transparentHugePages.enabled",
            "",
        ),
        (select(json!({})), "spec.settings.links[].select", exactly),
        (select(json!({ "primary": true, "rdma": true })), "spec.settings.links[].select", exactly),
        (select(json!({ "name": "*" })), "spec.settings.links[].select.name", ""),
        (
            link(json!({ "select": { "primary": true } })),
            "spec.settings.links[]",
            "needs mtu, txQueueLength, ring, channels, offloads or sysctls",
        ),
        (link(json!({ "select": { "primary": true }, "mtu": 100 })), "spec.settings.links[].mtu", ""),
        (
            link(json!({ "select": { "primary": true }, "sysctls": { "rp_filter": "1" } })),
            "spec.settings.links[].sysctls",
            "a setting of a link begins with ipv4. or ipv6., such as ipv6.accept_ra",
        ),
    ]
}

fn all_broken() -> impl Iterator<Item = (Value, &'static str, &'static str)> {
    broken().into_iter().chain(broken_files()).chain(broken_reservations())
}

/// The rules that are tried here.
pub(crate) fn tried() -> Vec<Complaint> {
    let rules = all_broken().filter(|(_, _, words)| !words.is_empty());
    rules.map(|(_, field, words)| (field.to_owned(), words.to_owned())).collect()
}

#[tokio::test]
async fn node_policy_that_breaks_a_rule_is_refused() {
    let client = client().await;
    for (object, field, words) in all_broken() {
        let complaints = try_create(&client, &object).await.unwrap_err();
        let refused = complaints.iter().any(|(at, message)| at.starts_with(field) && message.contains(words));
        assert!(refused, "{object}: {complaints:?}");
    }
}

/// A selector with so many values of the greatest length.
fn labels(count: usize) -> Value {
    let values: Vec<String> = (0..count).map(|number| format!("{number:02}{}", "v".repeat(61))).collect();
    json!({ "matchExpressions": [{ "key": "pool", "operator": "In", "values": values }] })
}

/// Settings of about so many bytes.
pub(crate) fn filled(bytes: usize) -> Value {
    let mut sysctls = serde_json::Map::new();
    let length =
        |sysctls: &serde_json::Map<String, Value>| serde_json::to_string(&json!({ "sysctls": sysctls })).unwrap().len();
    for number in 0..64 {
        let left = bytes.saturating_sub(length(&sysctls));
        let key = format!("net.core.a_long_key_{number:02}");
        if left > key.len() + 8 {
            sysctls.insert(key.clone(), json!("9".repeat((left - key.len() - 7).min(40))));
        }
    }
    json!({ "sysctls": sysctls })
}

#[tokio::test]
async fn settings_beyond_three_kibibytes_are_refused() {
    let client = client().await;
    let bytes = |settings: &Value| serde_json::to_string(settings).unwrap().len();
    let (most, more) = (filled(3060), filled(3100));
    assert!((3050..=3072).contains(&bytes(&most)) && bytes(&more) > 3072, "{} {}", bytes(&most), bytes(&more));
    assert!(try_create(&client, &settings(most)).await.is_ok());
    assert!(try_create(&client, &settings(more)).await.is_err());
    let selecting = |count| with(node_policy("a"), json!({ "allNodes": null, "nodeSelector": labels(count) }));
    assert!(try_create(&client, &selecting(7)).await.is_ok());
    assert!(try_create(&client, &selecting(8)).await.is_err());
}

#[tokio::test]
async fn largest_node_policy_takes_nine_kilobytes_in_etcd() {
    assert!(stored_with_largest_status(&"n".repeat(63), filled(3060)).await <= OBJECT_MAX);
}

/// How many bytes etcd holds of a policy with these settings, and the largest status.
pub(crate) async fn stored_with_largest_status(name: &str, settings: Value) -> usize {
    let client = client().await;
    let selector = labels(7);
    let rollout = json!({ "canary": { "nodes": 10, "soakSeconds": 86400 }, "maxUnavailable": "100%", "soakSeconds": 86400,
        "maxFailures": 9, "onFailure": "Hold" });
    let object = with(
        node_policy(name),
        json!({ "settings": settings, "allNodes": null, "nodeSelector": selector,
        "rollout": rollout, "priority": 1000, "mode": "Apply", "onDelete": "Keep", "paused": true }),
    );
    let objects = api(&client, "NodePolicy");
    objects.create(&PostParams::default(), &typed(&object)).await.unwrap();
    let now = Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH);
    let condition = |kind, reason| Condition::new(kind, reason, &"m".repeat(500), now.clone());
    let node = "a".repeat(253);
    let stable: NodeSettings = serde_json::from_value(settings).unwrap();
    let status = NodePolicyStatus {
        observed_generation: Some(1_000_000),
        conditions: vec![
            condition(api::ConditionType::Progressing, api::PolicyReason::InvalidSelector),
            condition(api::ConditionType::Applied, api::PolicyReason::NodeNotReady),
        ],
        created_by: "u".repeat(64),
        target: "0".repeat(16),
        rejected: "1".repeat(16),
        canaries: vec!["c".repeat(64); CANARIES_MAX],
        stable: Some(StableRevision {
            revision: "2".repeat(16),
            priority: 1000,
            settings: stable,
            ..StableRevision::default()
        }),
        nodes: Some(PolicyCounts { matched: u32::MAX, target: u32::MAX, stable: u32::MAX, ..PolicyCounts::default() }),
        failing: vec![FailingNode::new(&node, &"i".repeat(100), "NodeNotReady"); FAILING_MAX],
    };
    let read: api::NodePolicy = serde_json::from_value(object).unwrap();
    let status = status.bounded(&read.spec, FAILING_MAX);
    assert!(status.stable.is_some() && status.canaries.len() == CANARIES_MAX);
    let patch = json!({ "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "NodePolicy", "metadata": { "name": name }, "status": status });
    let params = PatchParams::apply(api::FIELD_MANAGER).force();
    objects.patch_status(name, &params, &Patch::Apply(&patch)).await.unwrap();
    let key = format!("/registry/{}/nodepolicies/{name}", api::GROUP);
    server().await.stored(&key).await.unwrap().unwrap().len()
}
