//! What happens while a source does not answer.

use serde_json::{Value, json};

use crate::follow_up::dual_stack_node;
use crate::metadata::Fault;
use crate::node::{Agent, Node, SLOW_RESYNC, wait_for};
use crate::pod::Pod;
use crate::running::{SECOND, in_time};

#[test]
fn agent_recovers_from_a_start_without_metadata_service() {
    let node = Node::with_pods();
    node.metadata.set_status(503);
    let agent = node.agent(&[]);
    wait_for("the reason", || node.conditions().contains(&"MetadataUnavailable".into()), || agent.log());
    assert_eq!((node.get("/healthz").0, node.get("/readyz").0), (200, 503));
    assert!(!node.path("net.d").join(vcn::CONFLIST_FILE).exists());
    node.metadata.set_status(200);
    node.wait_ready(&agent);
    assert_eq!(node.conditions(), [""; 0]);
}

/// The age of the last good answer, which is part of what is said, grows meanwhile.
#[test]
fn metadata_outage_is_logged_at_its_begin_and_end() {
    let (node, agent) = Node::with_pods().with_agent(&["--resync-seconds", "0.1"]);
    // A source that was slow at the start may have been reported, too.
    node.wait_conditions(&agent, &[]);
    let count = |event| agent.events(event).len();
    let at_first = (count("condition.raised"), count("condition.cleared"));
    node.metadata.set_fault(Fault::Garbage("{}"));
    node.wait_conditions(&agent, &["MetadataUnavailable"]);
    assert_eq!(node.get("/readyz").0, 200);
    let message = node.get("/readyz").1;
    assert!(
        message.contains("the last good answers are used, of this age: instance ") && message.contains(" s, VNICs ")
    );
    let (_, status) = node.run(&["status", "-o", "json"]);
    let status: Value = serde_json::from_str(&status).unwrap();
    let source = status["sources"].as_array().unwrap().iter().find(|it| it["name"] == "vnics").unwrap();
    assert!(source["ageSeconds"].is_u64() && source["error"].is_string(), "{source}");
    let metrics = node.get("/metrics").1;
    let age = metrics.lines().find(|line| line.starts_with("oke_node_agent_source_age_seconds{source=\"vnics\"}"));
    let age: f64 = age.unwrap().rsplit(' ').next().unwrap().parse().unwrap();
    assert!(age > 0.0 && age < 120.0, "{age}");
    let (before, log, said) = (node.passes("timer"), agent.log(), node.get("/readyz").1);
    let later = || node.passes("timer") > before + 10 && node.get("/readyz").1 != said;
    wait_for("ten more passes and another age", later, || node.get("/readyz").1);
    assert_eq!(agent.log(), log);
    assert_eq!(count("condition.raised"), at_first.0 + 1, "{log}");
    node.metadata.set_fault(Fault::None);
    node.wait_conditions(&agent, &[]);
    assert_eq!(count("condition.cleared"), at_first.1 + 1, "{}", agent.log());
}

/// What an agent in its best health keeps up is broken while none runs: our configuration, the plugin, a rule, a table.
fn broken(node: &Node) {
    std::fs::remove_file(node.path("net.d").join(vcn::CONFLIST_FILE)).unwrap();
    std::fs::remove_file(node.path("bin/vcn-native")).unwrap();
    node.delete_rule(vcn::Family::Ipv4, 1537);
    node.sh("ip link set ens5 down");
}

/// Everything that [`broken`] broke.
fn whole(node: &Node) -> bool {
    node.path("net.d").join(vcn::CONFLIST_FILE).exists()
        && node.path("bin/vcn-native").exists()
        && node.rules(vcn::Family::Ipv4).iter().any(|rule| rule.starts_with("1537 "))
        && node.routes(vcn::Family::Ipv4, 1000).len() == 2
}

/// As soon as ever.
fn assert_repairs(node: &Node, agent: &Agent) {
    in_time(SECOND, "the repair", || {
        node.sh("ip link set ens5 down");
        agent.timed(|| wait_for("the repair", || node.routes(vcn::Family::Ipv4, 1000).len() == 2, || agent.log()))
    });
}

#[test]
fn agent_started_during_an_outage_repairs_from_the_cached_copy() {
    for fault in [Fault::Status(404), Fault::Silent] {
        let (node, mut agent) = dual_stack_node().with_agent(&[]);
        let pod = Pod::add(&node, "a");
        pod.wait_connected();
        let before = (node.pools(), node.rules(vcn::Family::Ipv4));
        // The agent would notice the metadata service's silence only after a quarter of a minute.
        in_time(10 * SECOND, &format!("the repair, {fault:?}"), || {
            agent.stop();
            broken(&node);
            node.metadata.set_fault(fault);
            agent = node.agent(&[]);
            agent.timed(|| wait_for("the repair", || whole(&node), || agent.log()))
        });
        node.wait_ready(&agent);
        assert_eq!((node.pools(), node.rules(vcn::Family::Ipv4)), before);
        assert_eq!(node.conditions(), ["MetadataUnavailable"], "{}", agent.log());
        let message = node.get("/readyz").1;
        assert!(message.contains("the last good answers are used, of this age: instance "), "{message}");
        // The copy has only the keys that the agent uses, because metadata may have secrets.
        change_copy(&node, |copy| {
            assert_eq!(copy["value"]["instance"]["metadata"], json!({"oke-native-pod-networking": "true"}));
        });
        assert_repairs(&node, &agent);
        pod.wait_connected();
        // It is kept: a pod that goes without a DEL is reported.
        let other = Pod::add(&node, "b");
        other.wait_connected();
        node.metadata.set_fault(Fault::None);
        node.wait_conditions(&agent, &[]);
    }
}

fn change_copy(node: &Node, change: impl FnOnce(&mut Value)) {
    let path = node.path("lib").join(vcn::VNICS_COPY_FILE);
    let mut copy: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut copy);
    std::fs::write(path, copy.to_string()).unwrap();
}

#[test]
fn pods_start_after_a_boot_into_an_outage() {
    let (node, agent) = dual_stack_node().with_agent(&[]);
    agent.stop();
    change_copy(&node, |copy| copy["bootId"] = "another".into());
    std::fs::remove_file(node.path("run/pools.json")).unwrap();
    broken(&node);
    node.metadata.set_status(404);
    let _agent = node.ready_agent(&[]);
    Pod::add(&node, "a").wait_connected();
}

#[test]
fn damaged_native_pod_network_removes_nothing_and_is_reported() {
    let (node, agent) = Node::with_pods().with_agent(&[]);
    let vnics = node.pools()["vnics"].clone();
    std::fs::write(node.npn(), "{half").unwrap();
    node.wait_conditions(&agent, &["NativePodNetworkUnreadable"]);
    assert_eq!(node.get("/readyz").0, 200);
    assert_eq!(node.pools()["vnics"], vnics);
}

#[test]
fn pools_stay_without_native_pod_network_and_follow_its_return() {
    let (node, agent) = Node::with_pods().with_agent(&SLOW_RESYNC);
    let vnics = node.pools()["vnics"].clone();
    std::fs::remove_file(node.npn()).unwrap();
    node.wait_conditions(&agent, &["NativePodNetworkPending"]);
    assert_eq!((node.get("/readyz").0, node.pools()["vnics"].clone()), (200, vnics.clone()));
    assert!(node.pools()["reason"].as_str().unwrap().contains("no NativePodNetwork"), "{}", node.pools());
    in_time(SECOND, "it is followed", || {
        node.publish("BACKOFF", &[]);
        let said = || node.pools()["reason"].as_str().is_some_and(|it| it.contains("BACKOFF"));
        wait_for("its state", || said() && !node.conditions().is_empty(), || agent.log());
        assert_eq!(node.pools()["vnics"], vnics);
        node.publish("SUCCESS", &[("pods", 33)]);
        agent.timed(|| wait_for("the end of it", || node.conditions().is_empty(), || agent.log()))
    });
    assert_eq!((node.pools()["vnics"].clone(), node.pools()["reason"].clone()), (vnics, Value::Null));
}
