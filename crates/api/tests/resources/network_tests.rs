//! The rules of NetworkTest: which sources, targets and probes fit together, and that none of it changes.

use serde_json::{Value, json};

use crate::cluster::{client, try_create, try_replace};
use crate::sample::{network_test, with};

fn target(target: &Value) -> Value {
    json!({ "targets": [target], "externalTargets": true })
}

#[tokio::test]
async fn network_test_accepts_each_kind_of_source_target_and_probe() {
    let client = client().await;
    for spec in [
        json!({ "sources": [{ "nodeSelector": {} }, { "node": "10.0.10.2", "address": "10.0.33.7" }] }),
        target(&json!({ "nodeSelector": { "matchLabels": { "pool": "a" } } })),
        target(&json!({ "address": "10.0.10.9" })),
        target(&json!({ "address": "2603:c020:0:1::2" })),
        target(&json!({ "service": "oci-services" })),
        target(&json!({ "host": "objectstorage.eu-frankfurt-1.oraclecloud.com" })),
        json!({ "probes": [{ "type": "ICMP" }, { "type": "PathMTU" }, { "type": "Route" }, { "type": "DNS", "name": "a.b" }] }),
        json!({ "probes": [{ "type": "HTTP", "port": 8080, "path": "/healthz" }] }),
        json!({ "probes": [{ "type": "UDP", "port": 53, "count": 100, "rate": 100 }] }),
        json!({ "intervalSeconds": 60, "deadlineSeconds": 10, "concurrency": 32, "ttlSecondsAfterFinished": 0 }),
    ] {
        let accepted = try_create(&client, &with(network_test("accepted"), spec.clone())).await;
        assert!(accepted.is_ok(), "{spec}: {:?}", accepted.err());
    }
}

#[tokio::test]
async fn network_test_refuses_what_does_not_fit() {
    let client = client().await;
    let probe = |probe: Value| json!({ "probes": [probe] });
    for (spec, at) in [
        (json!({ "sources": [] }), "spec.sources"),
        (json!({ "sources": [{}] }), "spec.sources[]"),
        (json!({ "sources": [{ "node": "a", "nodeSelector": {} }] }), "spec.sources[]"),
        (json!({ "sources": [{ "nodeSelector": {}, "address": "10.0.0.1" }] }), "spec.sources[].address"),
        (target(&json!({})), "spec.targets[]"),
        (target(&json!({ "node": "a", "service": "dns" })), "spec.targets[]"),
        (target(&json!({ "service": "kubelet" })), "spec.targets[].service"),
        (target(&json!({ "address": "169.254.169.254" })), "spec.targets[].address"),
        (target(&json!({ "address": "127.0.0.1" })), "spec.targets[].address"),
        (target(&json!({ "address": "fd00:c1::a9fe:a9fe" })), "spec.targets[].address"),
        (target(&json!({ "host": "a b" })), "spec.targets[].host"),
        (json!({ "targets": [{ "host": "example.org" }] }), "spec.externalTargets"),
        (probe(json!({ "type": "TCP" })), "spec.probes[].port"),
        (probe(json!({ "type": "ICMP", "port": 1 })), "spec.probes[].port"),
        (probe(json!({ "type": "TCP", "port": 65536 })), "spec.probes[].port"),
        (probe(json!({ "type": "HTTP", "path": "a" })), "spec.probes[].path"),
        (probe(json!({ "type": "TCP", "port": 1, "path": "/" })), "spec.probes[].path"),
        (probe(json!({ "type": "ICMP", "name": "a" })), "spec.probes[].name"),
        (probe(json!({ "type": "ICMP", "count": 101 })), "spec.probes[].count"),
        (probe(json!({ "type": "ICMP", "rate": 101 })), "spec.probes[].rate"),
        (probe(json!({ "type": "ICMP", "count": 6, "rate": 1 })), "spec.probes[].count"),
        (probe(json!({ "type": "TCP", "port": 1, "count": 21 })), "spec.probes[].count"),
        (json!({ "intervalSeconds": 59 }), "spec.intervalSeconds"),
        (json!({ "deadlineSeconds": 601 }), "spec.deadlineSeconds"),
        (json!({ "concurrency": 33 }), "spec.concurrency"),
    ] {
        let complaints = try_create(&client, &with(network_test("refused"), spec.clone())).await.unwrap_err();
        assert!(complaints.iter().any(|(found, _)| found == at), "{spec}: {complaints:?}");
    }
}

#[tokio::test]
async fn network_tests_spec_cannot_be_changed() {
    let client = client().await;
    let old = network_test("immutable");
    for spec in [
        json!({ "concurrency": 2 }),
        json!({ "targets": [{ "node": "10.0.10.4" }] }),
        json!({ "probes": [{ "type": "TCP", "port": 10251 }] }),
    ] {
        let complaints = try_replace(&client, &old, &with(old.clone(), spec)).await.unwrap_err();
        let refused = complaints.iter().any(|(at, why)| at == "spec" && why.contains("cannot be changed"));
        assert!(refused, "{complaints:?}");
    }
    let mut labelled = old.clone();
    labelled["metadata"]["labels"] = json!({ "a": "b" });
    assert!(try_replace(&client, &old, &labelled).await.is_ok());
}
