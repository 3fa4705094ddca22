//! `why-not-ready`: order, age and next step of conditions, and the exit statuses for scripts.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ipam::BootTime;
use serde_json::Value;
use telemetry::{Delivery, Sink};

use crate::metadata::vnic;
use crate::node::{Node, SLOW_RESYNC, name, wait_for};
use crate::pod::{published, reserve, store};
use crate::records::record;

fn why(node: &Node) -> (i32, Value) {
    let output = node.output(&["why-not-ready", "-o", "json"]);
    (output.status.code().unwrap(), serde_json::from_slice(&output.stdout).unwrap())
}

fn reasons(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|it| it["reason"].as_str().unwrap().to_owned()).collect()
}

/// Nothing but the plugins' records says that addresses were taken and freed.
#[test]
fn full_node_blocks_pods_and_leaves_the_agent_ready() {
    let (node, agent) = Node::with_pods().with_agent(&SLOW_RESYNC);
    let send = |verb| assert_eq!(Sink::new(node.path("run")).send(&record(verb, "a")), Delivery::Agent);
    let (key, pools) = (|pod: usize| format!("vcn-native/pod{pod}/eth0"), published(&node));
    let reserve = |pod| {
        reserve(&node, &pools, &key(pod), name("vcn0"));
        send("ADD");
    };
    (0..15).for_each(&reserve);
    assert_eq!(why(&node).0, 0, "one is free");
    for _ in 0..2 {
        reserve(15);
        node.wait_conditions(&agent, &["AddressesExhausted"]);
        assert_eq!(node.get("/readyz").0, 200);
        let (status, why) = why(&node);
        assert_eq!((status, &why["ready"], &why["agentReady"]), (1, &false.into(), &true.into()));
        let blocking = &why["blocking"][0];
        assert_eq!(blocking["reason"], "AddressesExhausted");
        assert!(blocking["message"].as_str().unwrap().ends_with("held: IPv4: 16 of 16"), "{blocking}");
        let (_, text) = node.run(&["why-not-ready"]);
        assert!(text.starts_with("Full: the agent is ready, but new pods cannot start here."), "{text}");
        let metric = r#"oke_node_agent_condition{reason="AddressesExhausted",subject="",blocking="true"} 1"#;
        assert!(node.get("/metrics").1.contains(metric), "{}", node.get("/metrics").1);
        // The address cools down, and is given out before ADD fails.
        let now = BootTime::now().unwrap();
        store(&node).update(|held| Ok::<_, ipam::Error>(held.release(&key(15).parse().unwrap(), now))).unwrap();
        send("DEL");
        node.wait_conditions(&agent, &[]);
    }
    let of_it = |event| agent.events(event).iter().filter(|it| it["reason"] == "AddressesExhausted").count();
    assert_eq!((of_it("condition.raised"), of_it("condition.cleared")), (2, 2));
}

/// The command shows the network, and does not judge it.
#[test]
fn node_of_another_network_is_not_judged() {
    let node = Node::new();
    node.metadata.set_vnics(vec![vnic("primary", 10)]);
    let (net, bin, held) = (node.path("net.d"), node.path("bin"), node.path("lib/cni/networks/cbr0"));
    for folder in [&net, &bin, &held] {
        fs::create_dir_all(folder).unwrap();
    }
    let flannel = r#"{"cniVersion":"1.0.0","name":"cbr0","plugins":[{"type":"flannel","delegate":{"bridge":"cni0"}},{"type":"portmap"}]}"#;
    fs::write(net.join("10-flannel.conflist"), flannel).unwrap();
    fs::write(bin.join("flannel"), "").unwrap();
    for name in ["10.244.1.2", "10.244.1.3", "last_reserved_ip.0", "lock"] {
        fs::write(held.join(name), "").unwrap();
    }
    node.sh("ip link add cni0 type bridge; ip addr add 10.244.1.1/24 dev cni0");
    let cache = ["--cni-cache-dir", "/var/lib/vcn-native/cni"];
    let agent = node.agent(&[&cache[..], &["--pod-network", "none"]].concat());
    wait_for("its first reconcile", || node.get("/readyz").0 == 200, || agent.log());
    let output = node.output(&[&["why-not-ready"][..], &cache].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    let (_, json) = why(&node);
    assert_eq!((&json["ready"], &json["otherNetwork"]["network"]["network"]), (&Value::Null, &"cbr0".into()));
    assert!(!text.contains("Ready: new pods can start here"), "{text}");
    for expected in [
        "Not judged: pods of this node use the network cbr0, which this agent does not manage.",
        "10-flannel.conflist",
        "portmap; there: flannel",
        "2 in use, 251 free IPv4 addresses",
    ] {
        assert!(text.contains(expected), "{expected:?} is not in:\n{text}");
    }
}

#[test]
fn blocking_condition_is_shown_with_age_and_next_step() {
    let node = Node::new();
    node.plug("ens5", 33);
    node.metadata.set_vnics(vec![vnic("primary", 10), vnic("pods", 33)]);
    let agent = node.agent(&[]);
    node.wait_conditions(&agent, &["NativePodNetworkPending"]);
    let since = || {
        let body: Value = serde_json::from_str(&node.get("/readyz").1).unwrap();
        body["conditions"][0]["sinceUnixMillis"].as_u64().unwrap()
    };
    let first = since();
    let passes = node.passes("timer");
    wait_for("another reconcile", || node.passes("timer") > passes, || agent.log());
    assert_eq!(since(), first, "since it began, not since it was last seen");
    let began = UNIX_EPOCH + Duration::from_millis(first);
    assert!(SystemTime::now().duration_since(began).unwrap() < Duration::from_mins(10));

    let (status, why) = why(&node);
    assert_eq!((status, reasons(&why["blocking"])), (1, vec!["NativePodNetworkPending".to_owned()]));
    assert!(why["blocking"][0]["nextStep"].as_str().unwrap().contains("kubectl get npn"));
    let output = node.output(&["why-not-ready"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("Not ready: new pods cannot start here. 1 reason(s)"), "{text}");
    assert!(text.contains("1. NativePodNetworkPending, for ") && text.contains("   Next: Run `kubectl"), "{text}");
    assert!(text.lines().count() < 25, "one screen:\n{text}");
    let status = node.output(&["status"]);
    assert_eq!(status.status.code(), Some(1));
    let text = String::from_utf8(status.stdout).unwrap();
    assert!(text.contains("BLOCKING NativePodNetworkPending"), "{text}");
    let pools = String::from_utf8(node.output(&["pools"]).stderr).unwrap();
    assert!(pools.contains("has not published pod addresses yet"), "{pools}");
}
