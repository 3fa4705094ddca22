//! Pairs of specs, on four nodes: two in one subnet, two in others.

use serde_json::{Value, json};

use super::*;

fn nodes() -> Nodes {
    let addresses = [("a", "10.0.10.2"), ("b", "10.0.10.3"), ("c", "10.0.20.2"), ("d", "10.0.30.2")];
    let labels = |name: &str| BTreeMap::from([("pool".to_owned(), if name < "c" { "x" } else { "y" }.to_owned())]);
    Nodes {
        labels: ["a", "b", "c", "d", "without-agent"].map(|name| (name.to_owned(), labels(name))).into(),
        addresses: addresses.map(|(name, address)| (name.to_owned(), address.parse().unwrap())).into(),
        held: [
            // Node and VNIC; a lists its agent's address, too.
            ("a", ["10.0.10.2", "2001:db8:10::2", "10.0.50.2"].as_slice()),
            ("c", &["10.0.20.2", "10.0.60.2", "2001:db8:60::2"]),
            ("without-agent", &["10.0.70.2"]),
        ]
        .map(|(name, held)| (name.to_owned(), held.iter().map(|address| address.parse().unwrap()).collect()))
        .into(),
        pods: vec![(selection(), vec![pod("cart-1", "10.0.33.7"), pod("cart-2", "10.0.33.8")])],
        allowed: TestTargets::Cluster,
        services: vec!["10.96.0.0/16".parse().unwrap()],
        oci_host: Some("iaas.eu-frankfurt-1.oraclecloud.com".to_owned()),
    }
}

fn selection() -> PodSelection {
    serde_json::from_value(json!({ "namespace": "shop", "selector": { "matchLabels": { "app": "cart" } } })).unwrap()
}

fn pod(name: &str, address: &str) -> TestPod {
    let addresses = vec![address.parse().unwrap()];
    TestPod { namespace: "shop".to_owned(), name: name.to_owned(), node: "b".to_owned(), addresses }
}

fn spec(sources: Value, targets: Value, more: &Value) -> NetworkTestSpec {
    let mut spec = json!({ "sources": sources, "targets": targets, "probes": [{ "type": "TCP", "port": 443 }] });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(spec).unwrap()
}

/// Each pair in a few words.
fn shown(spec: &NetworkTestSpec, nodes: &Nodes) -> Result<Vec<String>, PairError> {
    let shown = |pair: &TestPair| format!("{}>{}", pair.source, pair.target);
    pairs(spec, nodes).map(|pairs| pairs.iter().map(shown).collect())
}

#[test]
fn selectors_names_and_services_become_pairs() {
    let all = json!([{ "nodeSelector": {} }]);
    let pool = json!([{ "nodeSelector": { "matchLabels": { "pool": "x" } } }]);
    for (sources, targets, expected) in [
        (json!([{ "node": "a" }]), json!([{ "node": "c" }]), "a>c"),
        (pool.clone(), pool.clone(), "a>b b>a"),
        (
            pool.clone(),
            json!([{ "service": "imds" }, { "service": "oci-services" }]),
            "a>imds a>oci-services b>imds b>oci-services",
        ),
        (json!([{ "node": "a" }]), json!([{ "address": "10.0.30.2" }]), "a>d/10.0.30.2"),
        (json!([{ "node": "c" }]), json!([{ "service": "peers" }]), "c>d c>a c>b"),
        (json!([{ "node": "a" }]), all, "a>b a>c a>d"),
        (
            json!([{ "pods": selection() }]),
            json!([{ "node": "b" }, { "node": "c" }, { "pods": selection() }]),
            "shop/cart-1>c shop/cart-1>shop/cart-2 shop/cart-2>c shop/cart-2>shop/cart-1",
        ),
        (json!([{ "node": "b" }]), json!([{ "pods": selection() }]), "b>shop/cart-1 b>shop/cart-2"),
    ] {
        let expected: Vec<&str> = expected.split(' ').collect();
        assert_eq!(shown(&spec(sources, targets, &json!({})), &nodes()).unwrap(), expected);
    }
}

#[test]
fn services_are_targets_from_nodes_and_their_pod_networks() {
    let sources = json!([{ "node": "a" }, { "node": "a", "podNetwork": true }]);
    let targets = json!([{ "address": "10.96.3.4" }, { "pods": selection() }]);
    let found = pairs(&spec(sources.clone(), targets, &json!({})), &nodes()).unwrap();
    let shown: Vec<String> = found.iter().map(|pair| format!("{}>{}", pair.source, pair.target)).collect();
    let of = |source: &str| ["shop/cart-1", "shop/cart-2", "10.96.3.4"].map(|target| format!("{source}>{target}"));
    assert_eq!(shown, [of("a"), of("pod network of a")].concat());
    assert_eq!(found.iter().map(|pair| pair.from_pod).collect::<Vec<_>>(), [false, false, false, true, true, true]);
    // The address next to the network, and a source that cannot measure.
    let outside = spec(sources.clone(), json!([{ "address": "10.97.0.1" }]), &json!({}));
    assert!(matches!(pairs(&outside, &nodes()), Err(PairError::External(_))));
    let throughput = json!({ "probes": [{ "type": "Throughput" }] });
    let measured = pairs(&spec(sources, json!([{ "node": "b" }]), &throughput), &nodes());
    assert_eq!(measured, Err(PairError::Throughput("pod network of a".to_owned())));
}

#[test]
fn targets_outside_the_cluster_need_both_permissions() {
    let outside = |external: bool| {
        let targets = json!([{ "address": "203.0.113.9" }]);
        spec(json!([{ "node": "a" }]), targets, &json!({ "externalTargets": external }))
    };
    let host = spec(json!([{ "node": "a" }]), json!([{ "host": "example.org" }]), &json!({ "externalTargets": true }));
    let allowed = Nodes { allowed: TestTargets::Any, ..nodes() };
    let refused = Err(PairError::External("203.0.113.9".to_owned()));
    assert_eq!(shown(&outside(true), &nodes()), refused);
    assert_eq!(shown(&outside(false), &allowed), refused);
    let off = Nodes { allowed: TestTargets::None, ..nodes() };
    assert_eq!(shown(&outside(false), &off), Err(PairError::Off));
    assert_eq!(shown(&outside(true), &allowed).unwrap(), ["a>203.0.113.9"]);
    assert_eq!(shown(&host, &nodes()), Err(PairError::External("example.org".to_owned())));
    assert_eq!(shown(&host, &allowed).unwrap(), ["a>example.org"]);
    let targets = json!([{ "url": "https://example.org:8443/x" }]);
    let probes = json!({ "externalTargets": true, "probes": [{ "type": "HTTP" }] });
    let url = spec(json!([{ "node": "a" }]), targets, &probes);
    assert_eq!(shown(&url, &nodes()), Err(PairError::External("https://example.org:8443/x".to_owned())));
    let sent = &pairs(&url, &allowed).unwrap()[0].case.send;
    assert_eq!((sent.kind, &sent.target), (ProbeKind::Https, &ProbeTarget::Host("example.org".to_owned())));
    assert_eq!((sent.port, sent.path.as_deref()), (8443, Some("/x")));
}

#[test]
fn forbidden_addresses_are_refused_although_external_targets_are_allowed() {
    let allowed = Nodes { allowed: TestTargets::Any, ..nodes() };
    for address in ["169.254.169.254", "127.0.0.1", "fd00:c1::a9fe:a9fe", "::1"] {
        let spec = spec(json!([{ "node": "a" }]), json!([{ "address": address }]), &json!({ "externalTargets": true }));
        let forbidden = Err(PairError::Forbidden(address.parse().unwrap()));
        assert_eq!(shown(&spec, &allowed), forbidden);
        let host = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
        let more = json!({ "externalTargets": true, "probes": [{ "type": "HTTP" }] });
        let spec = self::spec(json!([{ "node": "a" }]), json!([{ "url": format!("http://{host}/") }]), &more);
        assert_eq!(shown(&spec, &allowed), forbidden);
    }
}

#[test]
fn source_address_must_be_the_nodes_own() {
    let from = |node: &str, address: &str| {
        let spec = spec(json!([{ "node": node, "address": address }]), json!([{ "node": "d" }]), &json!({}));
        shown(&spec, &Nodes { allowed: TestTargets::Any, ..nodes() })
    };
    // Of its agent, of the Node, of a VNIC.
    for address in ["10.0.10.2", "10.0.50.2"] {
        assert_eq!(from("a", address).unwrap(), [super::shown::at("a", Some(address.parse().unwrap())) + ">d"]);
    }
    assert_eq!(from("b", "10.0.10.3").unwrap(), ["b/10.0.10.3>d"]);
    // Of another node, of a pod on it, of none.
    for (node, address) in [("a", "10.0.20.2"), ("b", "10.0.33.7"), ("a", "203.0.113.9"), ("e", "10.0.10.2")] {
        let refused = PairError::ForeignSource(node.to_owned(), address.parse().unwrap());
        assert_eq!(from(node, address), Err(refused));
    }
}

#[test]
fn nothing_to_test_and_too_much_are_refused() {
    let one = |node: &str| spec(json!([{ "node": node }]), json!([{ "node": node }]), &json!({}));
    assert_eq!(shown(&one("a"), &nodes()), Err(PairError::None));
    let many: Vec<String> = (0..60).map(|number| format!("node-{number:03}")).collect();
    let many = Nodes {
        labels: many.iter().map(|name| (name.clone(), BTreeMap::new())).collect(),
        addresses: many.iter().zip(0..).map(|(name, last)| (name.clone(), IpAddr::from([10, 0, 0, last]))).collect(),
        ..nodes()
    };
    let all = json!([{ "nodeSelector": {} }]);
    assert!(matches!(shown(&spec(all.clone(), all, &json!({})), &many), Err(PairError::TooMany(_))));
}

#[test]
fn every_request_is_within_the_agents_bounds() {
    for kind in ["ICMP", "TCP", "UDP", "HTTP", "HTTPS", "DNS", "PathMTU", "Route"] {
        for (count, rate) in [(1, 1), (100, 100), (100, 1), (20, 4)] {
            let mut probe = json!({ "type": kind, "count": count, "rate": rate });
            if matches!(kind, "TCP" | "UDP") {
                probe["port"] = json!(443);
            }
            let spec = spec(json!([{ "node": "a" }]), json!([{ "node": "c" }]), &json!({ "probes": [probe] }));
            let found = pairs(&spec, &nodes()).unwrap();
            let request = nettest::probe::ProbeRequest::new(nettest::probe::Task::Send(found[0].case.send.clone()));
            assert_eq!(request.check(), Ok(()), "{kind} {count} {rate}");
        }
    }
}

#[test]
fn compared_nodes_are_near_and_far_but_outside_the_pair() {
    let spec = spec(json!([{ "node": "a" }]), json!([{ "node": "c" }]), &json!({}));
    let case = &pairs(&spec, &nodes()).unwrap()[0].case;
    let others: Vec<&str> = case.others.iter().map(|other| other.node.as_str()).collect();
    assert_eq!(others, ["b", "d"]);
    assert!(case.target_has_agent && case.send.source_port >= super::super::send::FIRST_PORT);
}

#[test]
fn three_near_and_two_far_nodes_are_compared_by_the_pairs_family() {
    let named = |subnet: u8, host: u8| (format!("{subnet}-{host}"), IpAddr::from([10, 0, subnet, host]));
    let all: Vec<_> = [30, 10, 20].into_iter().flat_map(|subnet| (2..7).map(move |host| named(subnet, host))).collect();
    // By IPv6, another subnet is the farthest.
    let v6 = |name: &str| {
        let (subnet, host) = name.split_once('-').unwrap();
        let subnet = if subnet == "20" { "ff20" } else { subnet };
        format!("2001:db8:{subnet}::{host}").parse::<IpAddr>().unwrap()
    };
    for (by_v6, expected) in
        [(false, ["10-3", "10-4", "10-5", "30-5", "30-6"]), (true, ["10-3", "10-4", "10-5", "20-5", "20-6"])]
    {
        let held = all.iter().map(|(name, _)| (name.clone(), vec![v6(name)]));
        let nodes = Nodes { addresses: all.iter().cloned().collect(), held: held.collect(), ..nodes() };
        let mut target = json!({ "node": "20-2" });
        if by_v6 {
            target["address"] = json!(v6("20-2"));
        }
        let case =
            pairs(&spec(json!([{ "node": "10-2" }]), json!([target]), &json!({})), &nodes).unwrap().remove(0).case;
        let others: Vec<&str> = case.others.iter().map(|other| other.node.as_str()).collect();
        assert_eq!(others, expected);
        assert_eq!(case.others[0].addresses, ["10.0.10.3".parse().unwrap(), v6("10-3")]);
    }
}

#[test]
fn addresses_of_nodes_and_vnics_are_targets_with_an_agent() {
    let of = |source: Value, target: Value| pairs(&spec(json!([source]), json!([target]), &json!({})), &nodes());
    for (target, shown, address) in [
        (json!({ "address": "10.0.60.2" }), "c/10.0.60.2", "10.0.60.2"),
        (json!({ "node": "c", "address": "2001:db8:60::2" }), "c/2001:db8:60::2", "2001:db8:60::2"),
        (json!({ "node": "c" }), "c", "10.0.20.2"),
    ] {
        let pair = of(json!({ "node": "a" }), target).unwrap().remove(0);
        let party = Party { node: Some("c".to_owned()), address: Some(address.parse().unwrap()) };
        assert_eq!((pair.target.as_str(), &pair.case.target), (shown, &party));
        assert!(pair.case.target_has_agent);
        // The kernel chooses the source, which is of the target's family.
        let source = pair.case.source.address.unwrap();
        assert_eq!((pair.case.send.source, source.is_ipv4()), (None, !address.contains(':')));
    }
    // The target's address is of the source's family, or there is no pair.
    let v6 = json!({ "node": "a", "address": "2001:db8:10::2" });
    let pair = of(v6.clone(), json!({ "node": "c" })).unwrap().remove(0);
    assert_eq!(pair.case.send.target, ProbeTarget::Address("2001:db8:60::2".parse().unwrap()));
    assert_eq!(pair.source, "a/2001:db8:10::2");
    assert_eq!(of(v6, json!({ "node": "c", "address": "10.0.60.2" })), Err(PairError::None));
    // Nodes that are compared have the target's family.
    assert_eq!(pair.case.others, []);
}

#[test]
fn address_of_another_node_needs_external_targets() {
    let of = |external: bool, allowed| {
        let targets = json!([{ "node": "c", "address": "10.0.50.2" }]);
        let spec = spec(json!([{ "node": "b" }]), targets, &json!({ "externalTargets": external }));
        shown(&spec, &Nodes { allowed, ..nodes() })
    };
    let refused = Err(PairError::Foreign("c".to_owned(), "10.0.50.2".parse().unwrap()));
    assert_eq!(of(true, TestTargets::Cluster), refused);
    assert_eq!(of(false, TestTargets::Any), refused);
    assert_eq!(of(true, TestTargets::Any).unwrap(), ["b>c/10.0.50.2"]);
    let agentless = spec(json!([{ "node": "a" }]), json!([{ "address": "10.0.70.2" }]), &json!({}));
    assert_eq!(shown(&agentless, &nodes()), Err(PairError::None), "its agent may appear");
}

#[test]
fn all_addresses_of_a_node_are_sources_of_the_targets_family() {
    let of = |target: Value| {
        let sources = json!([{ "node": "a", "allAddresses": true }]);
        let pairs = pairs(&spec(sources, json!([target]), &json!({})), &nodes()).unwrap();
        let shown = |pair: &TestPair| {
            assert_eq!(pair.case.source.address, pair.case.send.source);
            format!("{}>{}", pair.source, pair.target)
        };
        pairs.iter().map(shown).collect::<Vec<_>>()
    };
    assert_eq!(of(json!({ "node": "d" })), ["a/10.0.10.2>d", "a/10.0.50.2>d"]);
    assert_eq!(of(json!({ "node": "c" })), ["a/10.0.10.2>c", "a/2001:db8:10::2>c", "a/10.0.50.2>c"]);
    assert_eq!(of(json!({ "service": "imds" })), ["a/10.0.10.2>imds", "a/10.0.50.2>imds"]);
}

#[test]
fn pods_are_targets_at_each_address_of_the_sources_families() {
    let mut dual = pod("cart", "10.0.33.7");
    dual.addresses.push("2001:db8:33::7".parse().unwrap());
    let nodes = Nodes { pods: vec![(selection(), vec![dual])], ..nodes() };
    let from = |node: &str| spec(json!([{ "node": node }]), json!([{ "pods": selection() }]), &json!({}));
    assert_eq!(shown(&from("a"), &nodes).unwrap(), ["a>shop/cart", "a>shop/cart/2001:db8:33::7"]);
    assert_eq!(shown(&from("d"), &nodes).unwrap(), ["d>shop/cart"]);
}

#[test]
fn throughput_is_measured_between_nodes_only() {
    let of = |sources, targets| {
        let probe = json!({ "probes": [{ "type": "Throughput", "megabitsPerSecond": 500 }], "externalTargets": true });
        pairs(&spec(sources, targets, &probe), &Nodes { allowed: TestTargets::Any, ..nodes() })
    };
    let node = json!([{ "node": "a" }]);
    let found = of(node.clone(), json!([{ "node": "c" }, { "address": "10.0.30.2" }])).unwrap();
    let sent: Vec<_> =
        found.iter().map(|pair| (pair.target.as_str(), pair.case.send.port, pair.case.send.mbits)).collect();
    assert_eq!(sent, [("c", 5201, Some(500)), ("d/10.0.30.2", 5201, Some(500))]);
    let refused = |name: &str| Err(PairError::Throughput(name.to_owned()));
    assert_eq!(of(node.clone(), json!([{ "address": "10.0.99.9" }])), refused("10.0.99.9"));
    assert_eq!(of(json!([{ "pods": selection() }]), node.clone()), refused("shop/cart-1"));
    assert_eq!(of(node, json!([{ "pods": selection() }])), refused("shop/cart-1"));
}
