//! As many pods as a node may have, all at the same moment.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::thread;

use host_harness::Families;
use ipnetwork::IpNetwork;
use serde_json::Value;

use crate::node::{Node, Pod};

const PODS: usize = 250;

/// A node whose two VNICs have more addresses than there are pods, in the subnets of their routers.
fn large_node() -> Node {
    let node = Node::new(Families::Dual);
    node.enlarge(&["10.0.N.128/26"]);
    node
}

/// Each of so many runs ended within its first wait for a lock, but for a few. All of them together take seconds, and a run waits
/// for half a minute. That runs out only if the machine stands still for as long, which hardly any of them may see.
fn assert_hardly_any_repeated(node: &Node, runs: usize) -> usize {
    let repeated = node.repeated.load(Ordering::Relaxed);
    println!("{repeated} of {runs} runs were repeated");
    assert!(repeated <= runs / 10, "{repeated} of {runs} runs waited for too long");
    repeated
}

/// An address as results have it.
fn host_prefix(address: IpAddr) -> String {
    IpNetwork::from(address).to_string()
}

fn address(result: &Value, ip: usize) -> String {
    result["ips"][ip]["address"].as_str().unwrap().to_owned()
}

#[test]
fn two_hundred_fifty_concurrent_adds_and_dels_leave_no_state() {
    let node = large_node();
    let before = node.snapshot();
    let pods: Vec<_> = (0..PODS).map(|id| Pod::new(&format!("p{id}"))).collect();
    let results: Vec<Value> = thread::scope(|scope| {
        let adds: Vec<_> = pods.iter().map(|pod| scope.spawn(|| node.add(pod))).collect();
        adds.into_iter().map(|add| add.join().unwrap()).collect()
    });
    let given: HashSet<String> = results.iter().flat_map(|result| [address(result, 0), address(result, 1)]).collect();
    assert_eq!(given.len(), 2 * PODS, "no address twice");
    let repeated = assert_hardly_any_repeated(&node, PODS);
    assert_eq!(node.held(), PODS);
    for (pod, result) in pods.iter().zip(&results) {
        let number = if address(result, 0).starts_with("10.0.0.") { 0 } else { 1 };
        assert!(pod.reaches(&format!("10.0.{number}.1")), "{} with {result}", pod.id);
        assert!(pod.reaches(&format!("2001:db8:{number}::1")), "{} with {result}", pod.id);
    }
    thread::scope(|scope| pods.iter().for_each(|pod| drop(scope.spawn(|| node.del(pod)))));
    assert_eq!(node.snapshot(), before);
    assert_hardly_any_repeated(&node, 2 * PODS);
    let held = node.allocations();
    assert_eq!(held.allocations, []);
    let cooling: HashSet<String> = held.freed.iter().map(|freed| host_prefix(freed.address)).collect();
    assert!(given.is_subset(&cooling), "every address cools down");
    // Who gave up had some, too.
    assert!(cooling.len() <= 2 * (PODS + repeated) && cooling.len() == held.freed.len(), "{}", cooling.len());
}

#[test]
fn concurrent_adds_and_dels_keep_the_remaining_pods_connected() {
    let node = large_node();
    let pods: Vec<_> = (0..60).map(|id| Pod::new(&format!("p{id}"))).collect();
    // Every third stays; the others come and go, each on its own, for three rounds.
    thread::scope(|scope| {
        for (number, pod) in pods.iter().enumerate() {
            let node = &node;
            scope.spawn(move || {
                for _ in 0..3 {
                    node.add(pod);
                    node.del(pod);
                }
                if number % 3 == 0 {
                    node.add(pod);
                }
            });
        }
    });
    assert_hardly_any_repeated(&node, 60 * 6 + 20);
    let held = node.allocations().allocations;
    assert_eq!(held.len(), 20);
    for (number, pod) in pods.iter().enumerate().step_by(3) {
        let own = held.iter().find(|held| held.key.container_id.as_str() == pod.id).unwrap();
        let router = if own.addresses[0].vnic_link.as_str() == "ens5" { "10.0.0.1" } else { "10.0.1.1" };
        assert!(pod.reaches(router), "{number}");
    }
}
