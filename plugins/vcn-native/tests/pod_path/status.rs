//! STATUS decides whether a node is ready: it answers at once whatever else goes on, and says no for one reason only.

use std::fs::{self, File};
use std::time::{Duration, Instant};

use ipam::BootTime;

use crate::node::{Families, Node, Pod, assert_success, error_of};

fn status(node: &Node) -> std::process::Output {
    node.call(&[("CNI_COMMAND", "STATUS")], &node.conf("1.1.0"))
}

/// Whether it answers within 100 ms. A busy machine makes one run late, not each of fifty.
fn is_quick(node: &Node) -> bool {
    (0..50).any(|_| {
        let begun = Instant::now();
        assert_success(&status(node));
        begun.elapsed() <= Duration::from_millis(100)
    })
}

#[test]
fn status_waits_for_no_lock_no_agent_and_no_other_verb() {
    let node = Node::new(Families::Dual);
    node.add(&Pod::new("a"));
    let lock = lock_of_allocations(&node);
    let waiting = Pod::new("b");
    let mut add = node.start("ADD", &waiting, &node.conf("1.1.0"));
    assert_success(&status(&node));
    assert!(is_quick(&node));
    assert!(add.try_wait().unwrap().is_none(), "the lock does stop others");
    drop(lock);
    assert!(add.wait().unwrap().success());
}

#[test]
fn status_is_as_quick_with_many_pods_and_a_large_range() {
    let node = Node::new(Families::V6);
    let mut pools = node.pools();
    for (number, vnic) in pools.vnics.iter_mut().enumerate() {
        vnic.families.ipv6.as_mut().unwrap().addresses = vec![format!("2001:db8:{number}:8000::/65").parse().unwrap()];
    }
    node.write_pools(pools.vnics);
    (0..10).for_each(|id| drop(node.add(&Pod::new(&format!("p{id}")))));
    assert_success(&status(&node));
    assert!(is_quick(&node));
}

#[test]
fn damaged_or_unreadable_pools_and_those_of_another_boot_make_it_unavailable() {
    for content in ["", "{", "[]", r#"{"version":1,"bootId":"00000000-0000-0000-0000-000000000000","vnics":[]}"#] {
        let node = Node::new(Families::V4);
        fs::write(node.state.path().join("pools.json"), content).unwrap();
        let (code, text) = error_of(&status(&node));
        assert!(code == 50 && text.contains("pools.json") && text.contains("oke-node-agent why-not-ready"), "{text}");
        assert!(!text.contains("\\n"), "kubelet shows one line: {text}");
    }
}

/// Whatever the wall clock and the file's age say.
#[test]
fn a_node_without_vnics_has_its_grace_once_and_only_where_there_was_one() {
    let node = Node::new(Families::V4);
    let now = BootTime::now().unwrap().0;
    let file = node.state.path().join("pools.json");
    for (since, healthy) in [(0, false), (now.saturating_sub(31_000).max(1), false), (now, true), (u64::MAX, true)] {
        let mut pools = node.pools();
        pools.vnics.clear();
        pools.empty_since = Some(BootTime(since));
        pools.write(node.state.path()).unwrap();
        for written in [0, 4_000_000_000] {
            let written = std::time::UNIX_EPOCH + Duration::from_secs(written);
            File::options().write(true).open(&file).unwrap().set_modified(written).unwrap();
            let answer = status(&node);
            assert_eq!(answer.status.success(), healthy, "{since} at {now}");
        }
    }
}

#[test]
fn a_damaged_record_of_allocations_is_no_reason_to_evict_pods() {
    let node = Node::new(Families::V4);
    node.add(&Pod::new("a"));
    fs::write(node.state.path().join("allocations.json"), "{").unwrap();
    assert_success(&status(&node));
}

fn lock_of_allocations(node: &Node) -> File {
    let path = node.state.path().join("allocations.lock");
    let file = File::options().write(true).create(true).truncate(false).open(path).unwrap();
    file.lock().unwrap();
    file
}
