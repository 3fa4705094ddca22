//! Lists of the metadata service that lack something for longer than the grace, or have another order. The network of pods stays,
//! also when the agent starts meanwhile, because the agent before it saw a complete list.

use serde_json::{Value, json};
use vcn::Family;

use crate::follow_up::dual_stack_node;
use crate::metadata::{dual_stack, vnic};
use crate::node::{Agent, Node, wait_for};
use crate::pod::Pod;
use crate::running::at_once;

/// The rules, and the routes of the VNICs' tables.
type FamilyNetwork = (Vec<String>, [Vec<String>; 2]);

/// The network of pods and of the host.
/// Rules and routes of both families, and the pods' VNICs.
type HostNetwork = ([FamilyNetwork; 2], Value);

fn network(node: &Node) -> HostNetwork {
    let of = |family| (node.rules(family), [1000, 1001].map(|table| node.routes(family, table)));
    (Family::ALL.map(of), node.pools()["vnics"].clone())
}

/// The VNIC of the pods, with this changed.
fn pods(change: impl FnOnce(&mut Value)) -> Value {
    let mut entry = dual_stack("pods", 33);
    change(&mut entry);
    entry
}

/// Beyond the grace, with these conditions, the network is what it was.
fn assert_kept(node: &Node, agent: &Agent, whole: &HostNetwork, conditions: &[&str]) {
    node.wait_conditions(agent, conditions);
    node.wait_grace(agent);
    assert_eq!((&network(node), node.get("/readyz").0), (whole, 200), "{conditions:?}: {}", agent.log());
    node.wait_conditions(agent, conditions);
}

/// The VNIC `storage` is only the host's: no NativePodNetwork names it.
#[test]
fn incomplete_list_takes_nothing_from_pods_and_host() {
    let (primary, storage) = (vnic("primary", 10), vnic("storage", 34));
    // Of the first pod, and one that no pod has.
    let reordered = json!(["2603:c020:0:33::20", "2603:c020:0:33::22", "2603:c020:0:33::7"]);
    let cases = [
        (vec![], &["VnicNotListed"; 2][..]),
        // A family is missing.
        (vec![vnic("pods", 33), storage.clone()], &["VnicFamilyNotListed"]),
        (vec![pods(|it| it["subnetCidrBlock"] = Value::Null), storage.clone()], &["VnicUnreadable"]),
        (vec![pods(|it| it["ipv6Addresses"] = reordered), storage.clone()], &[]),
    ];
    at_once(cases, |(list, conditions)| {
        let node = dual_stack_node();
        node.plug("ens6", 34);
        let complete = vec![primary.clone(), dual_stack("pods", 33), storage.clone()];
        node.metadata.set_vnics(complete.clone());
        let agent = node.ready_agent(&[]);
        let pod = Pod::add(&node, "a");
        pod.wait_connected();
        let whole = network(&node);
        assert!(whole.0[0].1.iter().all(|routes| routes.len() == 2), "{whole:?}");

        node.metadata.set_vnics([vec![primary.clone()], list].concat());
        assert_kept(&node, &agent, &whole, conditions);
        pod.wait_connected();
        // One that starts meanwhile.
        drop(agent);
        let agent = node.ready_agent(&[]);
        assert_kept(&node, &agent, &whole, conditions);
        let another = Pod::add(&node, "b");
        another.wait_connected();
        if conditions.contains(&"VnicNotListed") {
            // One that went meanwhile is not remembered.
            drop(agent);
            node.sh("ip link del ens6");
            let agent = node.ready_agent(&[]);
            let gone = || !node.rules(Family::Ipv4).iter().any(|rule| rule.ends_with("1001"));
            wait_for("what is left of it to go", gone, || agent.log());
        } else {
            let whole = network(&node);
            node.metadata.set_vnics(complete);
            assert_kept(&node, &agent, &whole, &[]);
        }
        pod.wait_connected();
    });
}

#[test]
fn unwritable_copy_is_reported_once_and_written_when_possible() {
    let node = dual_stack_node();
    let copy = node.path("lib/vnics-seen.json");
    std::fs::create_dir(&copy).unwrap();
    let agent = node.ready_agent(&[]);
    let is_reported = || node.get("/readyz").1.contains("writing /var/lib/vcn-native/vnics-seen.json: ");
    wait_for("the report", is_reported, || agent.log());
    assert_eq!(node.conditions(), ["StateFailed"]);
    let requests = node.metadata.list_requests();
    wait_for("several more answers", || node.metadata.list_requests() >= requests + 4, || agent.log());
    std::fs::remove_dir(&copy).unwrap();
    wait_for("the copy", || copy.is_file() && node.conditions().is_empty(), || agent.log());
    let raised = agent.events("condition.raised");
    let of_it = |line: &&Value| line["subject"] == "instance and VNICs copy";
    assert_eq!(raised.iter().filter(of_it).count(), 1, "{raised:#?}");
}
