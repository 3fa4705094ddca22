//! Verbs of one attachment at the same time. A runtime should not do that; one that was restarted does.

use std::thread;
use std::time::Duration;

use host_harness::{Families, assert_success, error_of};

use crate::node::{Node, Pod, waited};

#[test]
fn two_concurrent_adds_with_same_key_create_one_working_network() {
    let node = Node::new(Families::Dual);
    let before = node.snapshot();
    let conf = node.conf("1.1.0");
    for round in 0..60_u64 {
        let pod = Pod::new(&format!("r{round}"));
        let first = node.start("ADD", &pod, &conf);
        thread::sleep(Duration::from_micros(round * 173 % 7100));
        let second = node.start("ADD", &pod, &conf);
        let outputs = [first, second].map(|child| child.wait_with_output().unwrap());
        let failed: Vec<_> = outputs.iter().filter(|output| !output.status.success()).map(error_of).collect();
        assert!(outputs.iter().all(|it| it.status.success() || waited(it)), "round {round}: {failed:?}");
        // Each answers for what it made: while one of them says that there is a pod, there is one.
        if failed.len() == 2 {
            node.add(&pod);
        }
        let held = node.allocations().allocations;
        let router = if held[0].addresses[0].vnic_link.as_str() == "ens5" { "10.0.0.1" } else { "10.0.1.1" };
        assert!(pod.reaches(router), "round {round}: {failed:?}");
        node.del(&pod);
        assert_eq!(node.snapshot(), before, "round {round}");
        assert_eq!(node.held(), 0, "round {round}");
    }
}

#[test]
fn concurrent_add_and_del_with_same_key_leave_no_state() {
    let node = Node::new(Families::Dual);
    let before = node.snapshot();
    let conf = node.conf("1.1.0");
    for round in 0..120_u64 {
        let pod = Pod::new(&format!("r{round}"));
        let add = node.start("ADD", &pod, &conf);
        thread::sleep(Duration::from_micros(round * 53 % 7100));
        assert_success(&node.patiently("DEL", &pod, &conf));
        let added = add.wait_with_output().unwrap();
        // "Its record went while it was added" is an expected answer.
        assert!(added.status.success() || error_of(&added).0 == 11, "round {round}: {added:?}");
        node.del(&pod);
        assert_eq!(node.snapshot(), before, "round {round}");
        assert_eq!(node.held(), 0, "round {round}");
    }
}

#[test]
fn six_concurrent_and_repeated_dels_with_same_key_all_succeed() {
    let node = Node::new(Families::Dual);
    let before = node.snapshot();
    for round in 0..20 {
        let pod = Pod::new(&format!("r{round}"));
        node.add(&pod);
        thread::scope(|scope| (0..3).for_each(|_| drop(scope.spawn(|| node.del(&pod)))));
        (0..3).for_each(|_| node.del(&pod));
        assert_eq!(node.snapshot(), before, "round {round}");
        assert_eq!(node.held(), 0, "round {round}");
    }
}
