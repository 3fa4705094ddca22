//! GC frees what the runtime no longer knows, and nothing else.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use crate::node::{Node, PLUGIN, Pod};
use host_harness::{Families, PATIENCE, assert_success, error_of, json_of, within};
use ipam::BootTime;
use serde_json::{Value, json};
use vcn::Family;

fn held(node: &Node) -> Vec<String> {
    let mut held: Vec<_> = node.allocations().allocations.iter().map(|it| it.key.to_string()).collect();
    held.sort();
    held
}

#[test]
fn either_name_of_the_list_of_attachments_is_understood() {
    for key in ["cni.dev/valid-attachments", "cni.dev/attachments"] {
        let node = Node::new(Families::Dual);
        let before = node.snapshot();
        let (dead, alive) = (Pod::new("dead"), Pod::new("alive"));
        node.add(&dead);
        node.add(&alive);
        node.age();
        assert_success(&node.gc_by(key, &["alive"]));
        assert_eq!(held(&node), ["vcn-native/alive/eth0"], "{key}");
        assert!(!dead.pings("10.0.0.1") && alive.reaches("10.0.1.1"), "{key}");
        // A namespace that is gone does not stop GC.
        drop(alive);
        assert_success(&node.gc_by(key, &[]));
        assert_eq!(node.snapshot(), before, "an empty list means that none is valid");
    }
}

#[test]
fn without_a_list_no_attachment_is_touched() {
    let node = Node::new(Families::V4);
    let pod = Pod::new("a");
    node.add(&pod);
    node.age();
    let (code, text) = error_of(&node.call(&[("CNI_COMMAND", "GC")], &node.conf("1.1.0")));
    assert!(code == 7 && text.contains("cni.dev/valid-attachments"), "{code} {text}");
    // As a runtime without pods says it, or one that forgot: what is of no attachment goes.
    orphan(&node, "10.0.0.9");
    let mut conf = node.conf("1.1.0");
    conf["cni.dev/valid-attachments"] = Value::Null;
    assert_success(&node.call(&[("CNI_COMMAND", "GC")], &conf));
    assert_eq!((held(&node).len(), node.pod_rules(Family::Ipv4).len()), (1, 1));
    assert!(pod.reaches("10.0.0.1"));
}

/// A rule as a killed verb leaves it: to a table that its address's next owner does not have.
fn orphan(node: &Node, address: &str) {
    node.sh(&format!("ip rule add from {address} lookup 1002 pref 1536 proto 157"));
}

#[test]
fn gc_removes_our_orphaned_rules_and_proxies_only() {
    let node = Node::new(Families::Dual);
    let alive = Pod::new("alive");
    node.add(&alive);
    let before = node.snapshot();
    node.sh("ip rule add from 10.0.0.77 lookup 1002 pref 1536 proto 4");
    node.sh("ip neighbour add proxy 10.0.0.78 dev ens5 protocol 4");
    let others = node.snapshot();
    orphan(&node, "10.0.0.79");
    node.sh("ip -6 rule add from 2603:c020:0:1::79 lookup 1002 pref 1536 proto 157");
    node.sh("ip neighbour add proxy 10.0.0.79 dev ens5 protocol 157");
    assert_ne!(node.snapshot(), others);
    assert_success(&node.gc(&["alive"]));
    assert_eq!(node.snapshot(), others, "rules and proxies of other programs stay");
    assert_ne!(others, before);
    assert!(alive.reaches("10.0.0.1"));
}

#[test]
fn gc_frees_dead_pod_when_another_record_is_unreadable() {
    let node = Node::new(Families::V4);
    let (odd, dead) = (Pod::new("odd"), Pod::new("dead"));
    node.add(&odd);
    let folder = node.file("allocations");
    let record = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    node.add(&dead);
    node.age();
    fs::remove_file(&record).unwrap();
    fs::create_dir(&record).unwrap();
    let (code, text) = error_of(&node.gc(&["odd"]));
    assert!(code == 101 && text.contains(record.to_str().unwrap()) && text.contains("dmesg"), "{code} {text}");
    assert_eq!(node.pod_rules(Family::Ipv4).len(), 1, "the dead pod's went");
    assert!(odd.reaches("10.0.0.1") && !dead.pings("10.0.0.1"));
}

/// A mount on its record is in the way.
#[test]
fn gc_and_full_add_remove_the_other_of_two_when_one_is_undeletable() {
    for stuck in ["a", "b"] {
        let node = Node::with_addresses(&["10.0.0.8/31"]);
        let pods = ["a", "b"].map(Pod::new);
        pods.iter().for_each(|pod| drop(node.add(pod)));
        node.age();
        let on_record = |script: &str| {
            node.sh(&format!("record=$(ls {}/{stuck}*); {script} $record", node.file("allocations").display()));
        };
        on_record("mount --bind $record");
        let (code, text) = error_of(&node.gc(&[]));
        assert!(code == 101 && text.contains(&format!("/{stuck}")), "{code} {text}");
        assert_eq!(held(&node), [format!("vcn-native/{stuck}/eth0")]);
        on_record("umount");

        // Both as ADDs that were killed long ago.
        pods.iter().for_each(|pod| drop(node.add(pod)));
        node.change_held(|held| held.tentative_until = Some(BootTime(1)));
        on_record("mount --bind $record");
        let next = Pod::new("next");
        node.add(&next);
        assert!(next.reaches("10.0.0.1"));
        assert_eq!(held(&node), [stuck, "next"].map(|id| format!("vcn-native/{id}/eth0")));
        on_record("umount");
    }
}

/// Without NET_ADMIN, the kernel deletes nothing.
#[test]
fn addresses_stay_held_while_the_kernel_refuses_deletions() {
    let node = Node::with_addresses(&["10.0.0.8/31"]);
    let [a, b, next] = ["a", "b", "next"].map(Pod::new);
    let both = ["vcn-native/a/eth0", "vcn-native/b/eth0"];
    node.add(&a);
    node.add(&b);
    node.age();
    let unprivileged = || {
        let mut program = Command::new("/usr/bin/setpriv");
        program.args(["--bounding-set=-net_admin", "--inh-caps=-net_admin", "--no-new-privs", PLUGIN]);
        program
    };
    let mut conf = node.conf("1.1.0");
    conf["cni.dev/valid-attachments"] = json!([]);
    let gc = node.spawn(unprivileged(), &[("CNI_COMMAND", "GC")], &conf).wait_with_output().unwrap();
    assert_eq!((error_of(&gc).0, held(&node)), (109, both.map(str::to_owned).to_vec()));

    // Both as ADDs that were killed long ago.
    node.change_held(|held| held.tentative_until = Some(BootTime(1)));
    let add = node.start_by(unprivileged(), "ADD", &next, &node.conf("1.0.0")).wait_with_output().unwrap();
    assert_eq!((error_of(&add).0, held(&node)), (102, both.map(str::to_owned).to_vec()));
    assert_success(&node.gc(&[]));
    assert_eq!(held(&node), [""; 0]);
}

#[test]
fn gc_spares_other_networks_young_pods_and_disabled_networks() {
    let node = Node::new(Families::V4);
    let (other, young) = (Pod::new("other"), Pod::new("young"));
    let mut conf = node.conf("1.1.0");
    conf["name"] = "another".into();
    json_of(&node.cni("ADD", &other, &conf));
    node.age();
    node.add(&young);
    assert_success(&node.gc(&[]));
    assert_eq!(held(&node), ["another/other/eth0", "vcn-native/young/eth0"]);

    node.age();
    let mut conf = node.conf("1.1.0");
    conf["cni.dev/valid-attachments"] = json!([]);
    conf["disableGC"] = true.into();
    assert_success(&node.call(&[("CNI_COMMAND", "GC")], &conf));
    assert_eq!(held(&node).len(), 2);
    assert!(other.reaches("10.0.0.1") && young.reaches("10.0.1.1"));
}

/// GC has its list, and waits for a verb that acts on one of the dead: that verb makes it again.
#[test]
fn gc_keeps_attachment_added_again_while_gc_waits_for_lock() {
    let node = Node::new(Families::V4);
    let (again, dead) = (Pod::new("again"), Pod::new("dead"));
    node.add(&again);
    node.add(&dead);
    node.age();
    let store = node.store();
    let key = "vcn-native/again/eth0".parse().unwrap();
    let acting = store.attachment(&key).unwrap();
    let mut conf = node.conf("1.1.0");
    conf["cni.dev/valid-attachments"] = json!([]);
    let gc = node.spawn(Command::new(PLUGIN), &[("CNI_COMMAND", "GC")], &conf);
    assert!(within(PATIENCE, || waited_for(&node.file("attachments.lock"))));
    let now = BootTime::now().unwrap();
    node.change_held(|it| it.since = if it.key == key { now } else { it.since });
    drop(acting);
    assert_success(&gc.wait_with_output().unwrap());
    assert_eq!(held(&node), ["vcn-native/again/eth0"]);
    assert!(again.reaches("10.0.0.1"));
}

/// Whether a process waits for a lock of this file, as the kernel lists them.
fn waited_for(path: &Path) -> bool {
    let inode = fs::metadata(path).unwrap().ino();
    let locks = fs::read_to_string("/proc/locks").unwrap();
    locks.lines().any(|line| line.contains("->") && line.contains(&format!(":{inode} ")))
}
