//! The rules of NetworkTest: which sources, targets and probes fit together, and that none of it changes.

use serde_json::{Value, json};

use crate::cluster::{client, try_create, try_replace};
use crate::sample::{network_test, with};

fn target(target: &Value) -> Value {
    json!({ "targets": [target], "externalTargets": true })
}

fn url(url: &str, probe: &Value) -> Value {
    json!({ "targets": [{ "url": url }], "externalTargets": true, "probes": [probe] })
}

#[tokio::test]
async fn network_test_accepts_each_kind_of_source_target_and_probe() {
    let client = client().await;
    for spec in [
        json!({ "sources": [{ "nodeSelector": {} }, { "node": "10.0.10.2", "address": "10.0.33.7" }] }),
        json!({ "sources": [{ "pods": { "namespace": "shop" } }] }),
        json!({ "sources": [{ "nodeSelector": {}, "allAddresses": true }, { "node": "a", "allAddresses": true }] }),
        json!({ "sources": [{ "node": "a", "podNetwork": true }] }),
        json!({ "targets": [{ "node": "10.0.20.3", "address": "10.0.33.8" }] }),
        target(&json!({ "nodeSelector": { "matchLabels": { "pool": "a" } } })),
        json!({ "targets": [{ "pods": { "namespace": "shop" } }] }),
        target(&json!({ "pods": { "namespace": "shop", "selector": { "matchLabels": { "app": "cart" } } } })),
        target(&json!({ "address": "10.0.10.9" })),
        target(&json!({ "address": "2603:c020:0:1::2" })),
        target(&json!({ "service": "oci-services" })),
        target(&json!({ "host": "objectstorage.eu-frankfurt-1.oraclecloud.com" })),
        url("https://[2603:c020::1]:8443/a?b=c%20d", &json!({ "type": "HTTPS" })),
        url("http://example.org", &json!({ "type": "HTTP", "count": 2 })),
        json!({ "probes": [{ "type": "ICMP" }, { "type": "PathMTU" }, { "type": "Route" }, { "type": "DNS", "name": "a.b" }] }),
        json!({ "probes": [{ "type": "HTTP", "port": 8080, "path": "/healthz" }] }),
        json!({ "probes": [{ "type": "UDP", "port": 53, "count": 100, "rate": 100 }] }),
        json!({ "probes": [{ "type": "Throughput" }], "targets": [{ "service": "peers" }, { "address": "10.0.10.9" }] }),
        json!({ "probes": [{ "type": "Throughput", "port": 8443, "megabitsPerSecond": 10000 }] }),
        json!({ "intervalSeconds": 60, "deadlineSeconds": 10, "concurrency": 32, "ttlSecondsAfterFinished": 0 }),
    ] {
        let accepted = try_create(&client, &with(network_test("accepted"), spec.clone())).await;
        assert!(accepted.is_ok(), "{spec}: {:?}", accepted.err());
    }
}

/// Rules that a spec breaks: the field and the rule's words, which are empty for the schema's own bounds.
#[expect(clippy::too_many_lines, reason = "a table")]
fn broken() -> Vec<(Value, &'static str, &'static str)> {
    let probe = |probe: Value| json!({ "probes": [probe] });
    let source = |source: Value| json!({ "sources": [source] });
    let selector = json!({ "matchExpressions": [{ "key": "a", "operator": "In" }] });
    let values = "values are for In and NotIn, which need at least one";
    let address = "must be an IPv4 or IPv6 address";
    let forbidden = "must not be loopback, link-local or the metadata service: use service imds or dns";
    let one = "needs exactly one of node, nodeSelector, pods, address, service, host and url, or node with address";
    let one_source = "needs exactly one of node, nodeSelector and pods";
    let port = "port is for TCP and UDP, which need it, and for HTTP, HTTPS and Throughput";
    let measured = "Throughput has neither count nor rate, and no port below 1024";
    let between = "Throughput is measured between nodes with agents: sources and targets must be nodes";
    let throughput = json!([{ "type": "Throughput" }]);
    let path = "path is for HTTP and HTTPS only";
    let with_url = "a target by URL is for the probes HTTP and HTTPS without port and path: the URL has them";
    let slow = "a probe takes at most 5 seconds: count must be at most 5 times rate";
    vec![
        (json!({ "sources": [] }), "spec.sources", ""),
        (source(json!({})), "spec.sources[]", one_source),
        (source(json!({ "node": "a", "nodeSelector": {} })), "spec.sources[]", one_source),
        (source(json!({ "nodeSelector": {}, "address": "10.0.0.1" })), "spec.sources[].address", "address needs node"),
        (source(json!({ "node": "a", "address": "10.0.0" })), "spec.sources[].address", address),
        (
            source(json!({ "node": "a", "address": "10.0.0.1", "allAddresses": true })),
            "spec.sources[].allAddresses",
            "allAddresses needs node or nodeSelector, without address",
        ),
        (
            source(json!({ "node": "a", "address": "10.0.0.1", "podNetwork": true })),
            "spec.sources[].podNetwork",
            "podNetwork needs node, without address and allAddresses",
        ),
        (source(json!({ "node": "a", "pods": { "namespace": "a" } })), "spec.sources[]", one_source),
        (
            source(json!({ "pods": { "namespace": "a", "selector": selector } })),
            "spec.sources[].pods.selector.matchExpressions[]",
            values,
        ),
        (source(json!({ "nodeSelector": selector })), "spec.sources[].nodeSelector.matchExpressions[]", values),
        (target(&json!({})), "spec.targets[]", one),
        (target(&json!({ "node": "a", "service": "dns" })), "spec.targets[]", one),
        (target(&json!({ "nodeSelector": {}, "address": "10.0.0.1" })), "spec.targets[]", one),
        (target(&json!({ "pods": { "namespace": "a" }, "node": "a" })), "spec.targets[]", one),
        (target(&json!({ "pods": { "namespace": "" } })), "spec.targets[].pods.namespace", ""),
        (target(&json!({ "pods": { "namespace": "a/b" } })), "spec.targets[].pods.namespace", ""),
        (target(&json!({ "pods": { "namespace": "../kube-system" } })), "spec.targets[].pods.namespace", ""),
        (target(&json!({ "pods": { "namespace": "A" } })), "spec.targets[].pods.namespace", ""),
        (source(json!({ "pods": { "namespace": "a\nb" } })), "spec.sources[].pods.namespace", ""),
        (source(json!({ "node": "a\u{1b}[2J" })), "spec.sources[].node", ""),
        (
            target(&json!({ "pods": { "namespace": "a", "selector": selector } })),
            "spec.targets[].pods.selector.matchExpressions[]",
            values,
        ),
        (target(&json!({ "service": "kubelet" })), "spec.targets[].service", ""),
        (target(&json!({ "address": "10.0.0" })), "spec.targets[].address", address),
        (target(&json!({ "address": "169.254.169.254" })), "spec.targets[].address", forbidden),
        (target(&json!({ "address": "127.0.0.1" })), "spec.targets[].address", forbidden),
        (target(&json!({ "address": "fd00:c1::a9fe:a9fe" })), "spec.targets[].address", forbidden),
        (target(&json!({ "host": "a b" })), "spec.targets[].host", ""),
        (target(&json!({ "nodeSelector": selector })), "spec.targets[].nodeSelector.matchExpressions[]", values),
        (
            json!({ "targets": [{ "host": "example.org" }] }),
            "spec.externalTargets",
            "a target by host name or URL needs externalTargets: true",
        ),
        (
            json!({ "targets": [{ "url": "https://a.b" }], "probes": [{ "type": "HTTPS" }] }),
            "spec.externalTargets",
            "a target by host name or URL needs externalTargets: true",
        ),
        (url("https://a.b", &json!({ "type": "ICMP" })), "spec.probes", with_url),
        (url("https://a.b", &json!({ "type": "HTTP", "port": 1 })), "spec.probes", with_url),
        (url("https://user@a.b", &json!({ "type": "HTTPS" })), "spec.targets[].url", ""),
        (url("ftp://a.b/", &json!({ "type": "HTTPS" })), "spec.targets[].url", ""),
        (url("https://a.b/ c", &json!({ "type": "HTTPS" })), "spec.targets[].url", ""),
        (probe(json!({ "type": "TCP" })), "spec.probes[].port", port),
        (probe(json!({ "type": "ICMP", "port": 1 })), "spec.probes[].port", port),
        (probe(json!({ "type": "TCP", "port": 65536 })), "spec.probes[].port", ""),
        (probe(json!({ "type": "HTTP", "path": "a" })), "spec.probes[].path", ""),
        (probe(json!({ "type": "TCP", "port": 1, "path": "/" })), "spec.probes[].path", path),
        (probe(json!({ "type": "ICMP", "name": "a" })), "spec.probes[].name", "name is for DNS only"),
        (probe(json!({ "type": "ICMP", "count": 101 })), "spec.probes[].count", ""),
        (probe(json!({ "type": "ICMP", "rate": 101 })), "spec.probes[].rate", ""),
        (probe(json!({ "type": "ICMP", "count": 6, "rate": 1 })), "spec.probes[].count", slow),
        (
            probe(json!({ "type": "TCP", "port": 1, "count": 21 })),
            "spec.probes[].count",
            "TCP, HTTP and HTTPS make at most 20 connections",
        ),
        (probe(json!({ "type": "Throughput", "count": 1 })), "spec.probes[]", measured),
        (probe(json!({ "type": "Throughput", "rate": 1 })), "spec.probes[]", measured),
        (probe(json!({ "type": "Throughput", "port": 443 })), "spec.probes[]", measured),
        (probe(json!({ "type": "Throughput", "megabitsPerSecond": 10001 })), "spec.probes[].megabitsPerSecond", ""),
        (
            probe(json!({ "type": "ICMP", "megabitsPerSecond": 1 })),
            "spec.probes[].megabitsPerSecond",
            "megabitsPerSecond is for Throughput only",
        ),
        (json!({ "probes": throughput, "targets": [{ "service": "imds" }] }), "spec.probes", between),
        (json!({ "probes": throughput, "sources": [{ "pods": { "namespace": "a" } }] }), "spec.probes", between),
        (json!({ "intervalSeconds": 59 }), "spec.intervalSeconds", ""),
        (json!({ "deadlineSeconds": 601 }), "spec.deadlineSeconds", ""),
        (json!({ "concurrency": 33 }), "spec.concurrency", ""),
    ]
}

/// The rules that tests here break, as the definition has them.
pub(crate) fn tried() -> impl Iterator<Item = (String, String)> {
    let elsewhere = [
        ("", "a NetworkTest's name has at most 63 characters"),
        ("spec", "cannot be changed: create another NetworkTest"),
    ];
    let broken = broken().into_iter().map(|(_, field, message)| (field, message));
    let all = broken.filter(|(_, message)| !message.is_empty()).chain(elsewhere);
    all.map(|(field, message)| (field.to_owned(), message.to_owned()))
}

#[tokio::test]
async fn network_test_refuses_what_does_not_fit() {
    let client = client().await;
    for (spec, field, message) in broken() {
        let complaints = try_create(&client, &with(network_test("refused"), spec.clone())).await.unwrap_err();
        let complains = complaints.iter().any(|(found, why)| found == field && why.contains(message));
        assert!(complains, "{spec}: {complaints:?}");
    }
    let long = try_create(&client, &network_test(&"a".repeat(64))).await.unwrap_err();
    assert!(long.iter().any(|(_, why)| why.contains("at most 63 characters")), "{long:?}");
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
    let mut labeled = old.clone();
    labeled["metadata"]["labels"] = json!({ "a": "b" });
    assert!(try_replace(&client, &old, &labeled).await.is_ok());
}
