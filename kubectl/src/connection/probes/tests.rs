//! The NetworkTests of a connection, and what their statuses mean.

use clap::Parser as _;
use serde_json::{Value, json};

use super::*;
use crate::args::{Args, Command};
use crate::connection::facts::facts;

fn args(words: &[&str]) -> NetTestArgs {
    let words = ["kubectl-oke_node", "nettest"].iter().chain(words);
    let Command::Nettest(args) = Args::try_parse_from(words).unwrap().command else { panic!("another command") };
    args
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn pod(name: &str, address: &str, node: &str) -> Value {
    let host_network = address == node;
    json!({ "metadata": { "namespace": "shop", "name": name, "labels": { "app": "cart" } },
        "spec": { "nodeName": node, "hostNetwork": host_network, "containers": [{ "name": "c" }] },
        "status": { "phase": "Running", "podIPs": [{ "ip": address }],
            "conditions": [{ "type": "Ready", "status": "True" }] } })
}

fn objects() -> Objects {
    let endpoint = |name: &str, address: &str, node: &str| {
        json!({ "addresses": [address], "nodeName": node,
            "targetRef": { "kind": "Pod", "namespace": "shop", "name": name } })
    };
    let service = json!({ "metadata": { "namespace": "shop", "name": "cart" }, "spec": { "type": "NodePort",
        "selector": { "app": "cart" }, "clusterIPs": ["10.96.3.4", "fd00:96::4"],
        "ports": [{ "port": 80, "targetPort": 8080, "nodePort": 30080 }] },
        "status": { "loadBalancer": { "ingress": [{ "ip": "203.0.113.7" }] } } });
    let slice = json!({ "metadata": {}, "addressType": "IPv4", "ports": [{ "port": 8080 }],
        "endpoints": [endpoint("cart-0", "10.0.33.7", "10.0.20.3"), endpoint("cart-host", "10.0.30.2", "10.0.30.2"), { "addresses": ["192.0.2.9"] }] });
    Objects {
        source: Some(read(pod("front", "10.0.32.5", "10.0.20.3"))),
        node: Some(read(json!({ "metadata": { "name": "10.0.20.3" } }))),
        service: Some(read(service)),
        slices: Some(vec![read(slice)]),
        selected: Some(vec![
            read(pod("cart-0", "10.0.33.7", "10.0.20.3")),
            read(pod("cart-host", "10.0.30.2", "10.0.30.2")),
        ]),
        dns: Some(read(json!({ "metadata": {}, "spec": { "clusterIP": "10.96.5.5" } }))),
        ..Objects::default()
    }
}

/// The kind of each test, with its probe, its sources and its targets.
fn planned(words: &[&str]) -> (Vec<(String, Value)>, ProbePlan) {
    let (args, objects) = (args(words), objects());
    let (from, to) = (Source::read(&args.from).unwrap(), Target::read(&args.to).unwrap());
    let plan = plan(&args, &from, &to, &facts(&from, &to, None, &objects), &objects);
    let shown = |run: &ProbeRun| {
        let spec = serde_json::to_value(&run.test.spec).unwrap();
        (run.target.to_string(), json!([spec["probes"][0], spec["sources"], spec["targets"]]))
    };
    (plan.runs.iter().map(shown).collect(), plan)
}

#[test]
fn service_is_probed_at_its_address_its_endpoints_its_node_port_and_its_name() {
    let (runs, plan) = planned(&["pod/shop/front", "service/shop/cart"]);
    let node = json!({ "node": "10.0.20.3" });
    let sources = json!([node, { "node": "10.0.20.3", "podNetwork": true }]);
    let tcp = |port: u16| json!({ "type": "TCP", "port": port });
    let name = json!({ "type": "DNS", "name": "cart.shop.svc.cluster.local" });
    let cart = json!({ "pods": { "namespace": "shop", "name": "cart-0" } });
    let expected = [
        // The Pod has no IPv6 address.
        ("service", json!([tcp(80), sources, [{ "address": "10.96.3.4" }]])),
        ("endpoint", json!([tcp(8080), sources, [cart]])),
        ("endpoint", json!([tcp(8080), sources, [{ "node": "10.0.30.2" }]])),
        ("endpoint", json!([tcp(8080), sources, [{ "address": "192.0.2.9" }]])),
        ("node port", json!([tcp(30080), [node], [{ "node": "10.0.30.2" }]])),
        ("name", json!([name, sources, [{ "address": "10.96.5.5" }]])),
    ];
    assert_eq!(runs, expected.map(|(kind, spec)| (kind.to_owned(), spec)));
    assert_eq!(plan.not_probed, ["the LoadBalancer's address 203.0.113.7: it needs --external"]);
    // An endpoint with the source's own address is not a target.
    let (runs, plan) = planned(&["10.0.30.2", "service/shop/cart"]);
    let own = json!({ "node": "10.0.30.2" });
    assert!(runs.iter().all(|(_, spec)| !spec[2].as_array().unwrap().contains(&own)), "{runs:?}");
    assert!(plan.not_probed.iter().any(|why| why.starts_with("shop/cart-host: ")), "{:?}", plan.not_probed);
    // From another node, without a probe Pod.
    let (runs, _) = planned(&["10.0.10.2", "service/shop/cart", "--external"]);
    let other = json!([{ "node": "10.0.10.2" }]);
    let outside = [
        ("node port", json!([tcp(30080), other, [node]])),
        ("load balancer", json!([tcp(80), other, [{ "address": "203.0.113.7" }]])),
    ];
    assert_eq!(runs[5..7], outside.map(|(kind, spec)| (kind.to_owned(), spec)), "{runs:?}");
}

/// A slice names a Pod that has another address, of its own choice or because it is old.
#[test]
fn endpoint_is_probed_at_the_address_of_its_slice() {
    let mut objects = objects();
    let target = |objects: &Objects| {
        let address = "10.0.33.7".parse().unwrap();
        let pod = Some(ObjectName { namespace: "shop".to_owned(), name: "cart-0".to_owned() });
        of_backend(&Backend { pod, address, node: None, is_ready: true, is_serving: true, port: None }, objects).object
    };
    let by_name = json!({ "pods": { "namespace": "shop", "name": "cart-0" } });
    assert_eq!(target(&objects), by_name);
    objects.selected = Some(vec![read(pod("cart-0", "10.0.33.8", "10.0.20.3"))]);
    assert_eq!(target(&objects), json!({ "address": "10.0.33.7" }));
    objects.selected = Some(Vec::new());
    assert_eq!(target(&objects), json!({ "address": "10.0.33.7" }));
    objects.selected = None;
    assert_eq!(target(&objects), by_name);
}

#[test]
fn other_targets_are_probed_from_a_node_and_its_pod_network() {
    let (runs, _) = planned(&["pod/shop/front", "imds"]);
    let sources = json!([{ "node": "10.0.20.3" }, { "node": "10.0.20.3", "podNetwork": true }]);
    assert_eq!(runs, [("endpoint".to_owned(), json!([{ "type": "HTTP" }, sources, [{ "service": "imds" }]]))]);
}

#[test]
fn pairs_that_a_status_does_not_list_passed_only_if_it_is_complete() {
    let (_, plan) = planned(&["pod/shop/front", "service/shop/cart"]);
    let outcomes = |run: usize, status: Value| {
        let results = plan.runs[run].results(&read(status));
        results.iter().map(|one| format!("{:?} {} {}", one.source, one.to, one.outcome)).collect::<Vec<_>>().join(", ")
    };
    let counts = |tested: u32, failed: u32| json!({ "pairs": 4, "tested": tested, "failed": failed, "unknown": 0, "sent": 20, "lost": 5 });
    let pair = |source: &str, target: &str, label: &str| {
        json!({ "source": source, "target": target, "probe": "TCP/8080", "label": label, "cause": "PortClosed", "failure": "5 of 5 lost, refused",
            "lastSeen": "", "before": "", "after": "", "fix": "" })
    };
    let finished = |worst: Value| json!({ "state": "Finished", "counts": counts(4, 1), "worst": worst });
    let fails = finished(json!([pair("pod network of 10.0.20.3", "shop/cart-0/fd00::7", "Likely")]));
    assert_eq!(outcomes(1, fails), "Node shop/cart-0 passes, Pod shop/cart-0 fails");
    let unknown = finished(json!([pair("10.0.20.3", "10.0.30.2", "Unknown")]));
    assert_eq!(outcomes(2, unknown), "Node shop/cart-host not known, Pod shop/cart-host passes");
    // No Pod of the name was there.
    let none = json!({ "state": "Finished", "counts": { "pairs": 0, "tested": 0, "failed": 0, "unknown": 0, "sent": 0, "lost": 0 } });
    assert_eq!(outcomes(1, none), "Node shop/cart-0 not known, Pod shop/cart-0 not known");
    for incomplete in [
        json!({ "state": "TimedOut", "counts": counts(3, 0) }),
        json!({ "state": "Finished", "counts": counts(4, 3), "worst": [] }),
        json!({}),
    ] {
        assert_eq!(
            outcomes(0, incomplete.clone()),
            "Node 10.96.3.4 not known, Pod 10.96.3.4 not known",
            "{incomplete}"
        );
    }
}
