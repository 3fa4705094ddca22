//! GC frees what the runtime no longer knows, and nothing else.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use crate::node::{Families, Node, PATIENCE, PLUGIN, Pod, assert_success, error_of, json_of, name, within};
use ipam::{BootId, BootTime, Store};
use netlink::{LinkChange, LinkKind, NewLink, Peer, Socket};
use serde_json::{Value, json};
use vcn::Family;

/// As if every ADD had been long ago.
pub(crate) fn age(node: &Node) {
    let store = Store::new(node.state.path(), BootId::current().unwrap());
    let aged = store.update(|held| {
        held.allocations.iter_mut().for_each(|allocation| allocation.since = BootTime(0));
        Ok::<_, ipam::Error>(())
    });
    aged.unwrap();
}

fn gc(node: &Node, key: &str, valid: &Value) -> std::process::Output {
    let mut conf = node.conf("1.1.0");
    conf[key] = valid.clone();
    node.call(&[("CNI_COMMAND", "GC")], &conf)
}

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
        age(&node);
        assert_success(&gc(&node, key, &json!([{"containerID": "alive", "ifname": "eth0"}])));
        assert_eq!(held(&node), ["vcn-native/alive/eth0"], "{key}");
        assert!(!dead.pings("10.0.0.1") && alive.reaches("10.0.1.1"), "{key}");
        assert_success(&gc(&node, key, &json!([])));
        assert_eq!(node.snapshot(), before, "an empty list means that none is valid");
    }
}

#[test]
fn without_a_list_no_attachment_is_touched() {
    let node = Node::new(Families::V4);
    let pod = Pod::new("a");
    node.add(&pod);
    age(&node);
    let (code, text) = error_of(&node.call(&[("CNI_COMMAND", "GC")], &node.conf("1.1.0")));
    assert!(code == 7 && text.contains("cni.dev/valid-attachments"), "{code} {text}");
    // As a runtime without pods says it, or one that forgot: what is of no attachment goes.
    stray(&node, "10.0.0.9");
    assert_success(&gc(&node, "cni.dev/valid-attachments", &Value::Null));
    assert_eq!((held(&node).len(), node.pod_rules(Family::Ipv4).len()), (1, 1));
    assert!(pod.reaches("10.0.0.1"));
}

/// A rule as a killed verb leaves it: to a table that its address's next owner does not have.
fn stray(node: &Node, address: &str) {
    ip(node, &format!("rule add from {address} lookup 1002 pref 1536 proto 157"));
}

/// iproute2 on the host.
fn ip(node: &Node, words: &str) {
    let status = node.host.run(|| Command::new("ip").args(words.split(' ')).status().unwrap()).unwrap();
    assert!(status.success(), "ip {words}");
}

#[test]
fn gc_removes_our_orphaned_rules_and_proxies_only() {
    let node = Node::new(Families::Dual);
    let alive = Pod::new("alive");
    node.add(&alive);
    let before = node.snapshot();
    ip(&node, "rule add from 10.0.0.77 lookup 1002 pref 1536 proto 4");
    ip(&node, "neighbour add proxy 10.0.0.78 dev ens5 protocol 4");
    let others = node.snapshot();
    stray(&node, "10.0.0.79");
    ip(&node, "-6 rule add from 2603:c020:0:1::79 lookup 1002 pref 1536 proto 157");
    ip(&node, "neighbour add proxy 10.0.0.79 dev ens5 protocol 157");
    assert_ne!(node.snapshot(), others);
    assert_success(&gc(&node, "cni.dev/valid-attachments", &json!([{"containerID": "alive", "ifname": "eth0"}])));
    assert_eq!(node.snapshot(), others, "rules and proxies of other programs stay");
    assert_ne!(others, before);
    assert!(alive.reaches("10.0.0.1"));
}

#[test]
fn gc_frees_dead_pod_when_another_record_is_unreadable() {
    let node = Node::new(Families::V4);
    let (odd, dead) = (Pod::new("odd"), Pod::new("dead"));
    node.add(&odd);
    let folder = node.state.path().join("allocations");
    let record = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    node.add(&dead);
    age(&node);
    fs::remove_file(&record).unwrap();
    fs::create_dir(&record).unwrap();
    let (code, text) =
        error_of(&gc(&node, "cni.dev/valid-attachments", &json!([{"containerID": "odd", "ifname": "eth0"}])));
    assert!(code == 101 && text.contains(record.to_str().unwrap()) && text.contains("dmesg"), "{code} {text}");
    assert_eq!(node.pod_rules(Family::Ipv4).len(), 1, "the dead pod's went");
    assert!(odd.reaches("10.0.0.1") && !dead.pings("10.0.0.1"));
}

#[test]
fn gc_spares_other_networks_young_pods_and_disabled_networks() {
    let node = Node::new(Families::V4);
    let (other, young) = (Pod::new("other"), Pod::new("young"));
    let mut conf = node.conf("1.1.0");
    conf["name"] = "another".into();
    json_of(&node.cni("ADD", &other, &conf));
    age(&node);
    node.add(&young);
    assert_success(&gc(&node, "cni.dev/valid-attachments", &json!([])));
    assert_eq!(held(&node), ["another/other/eth0", "vcn-native/young/eth0"]);

    age(&node);
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
    age(&node);
    let store = Store::new(node.state.path(), BootId::current().unwrap());
    let key = "vcn-native/again/eth0".parse().unwrap();
    let acting = store.attachment(&key).unwrap();
    let mut conf = node.conf("1.1.0");
    conf["cni.dev/valid-attachments"] = json!([]);
    let gc = node.spawn(Command::new(PLUGIN), &[("CNI_COMMAND", "GC")], &conf);
    assert!(within(PATIENCE, || waited_for(&node.state.path().join("attachments.lock"))));
    let anew = store.update(|held| {
        let now = BootTime::now()?;
        held.allocations.iter_mut().filter(|it| it.key == key).for_each(|it| it.since = now);
        Ok::<_, ipam::Error>(())
    });
    anew.unwrap();
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

#[test]
fn gc_succeeds_and_keeps_foreign_link_with_dead_pods_name() {
    let node = Node::new(Families::V4);
    let (renamed, dead) = (Pod::new("renamed"), Pod::new("dead"));
    let link = node.add(&renamed)["interfaces"][0]["name"].as_str().unwrap().to_owned();
    node.add(&dead);
    age(&node);
    node.in_host(|socket| {
        socket.delete_link_named(&name(&link)).unwrap();
        socket.add_link(&NewLink::new(name(&link), LinkKind::Bridge)).unwrap();
    });
    assert_success(&gc(&node, "cni.dev/valid-attachments", &json!([])));
    assert!(held(&node).is_empty() && node.pod_rules(Family::Ipv4).is_empty());
    assert!(node.in_host(|socket| socket.link(&name(&link)).is_ok()));
}

#[test]
fn a_namespace_that_is_gone_is_no_obstacle() {
    let node = Node::new(Families::Dual);
    let before = node.snapshot();
    let pod = Pod::new("a");
    node.add(&pod);
    drop(pod);
    age(&node);
    assert_success(&gc(&node, "cni.dev/valid-attachments", &json!([])));
    assert_eq!(node.snapshot(), before);
}

#[test]
fn gc_keeps_foreign_veth_with_our_name_prefix() {
    let node = Node::new(Families::V4);
    let pod = Pod::new("a");
    node.add(&pod);
    let foreign = Pod::new("foreign");
    let peer = Peer { name: name("eth0"), mac: None, mtu: None, netns: Some(foreign.netns.as_fd()) };
    node.in_host(|socket| {
        socket.add_link(&NewLink::new(name("vcnforeign"), LinkKind::Veth(peer))).unwrap();
    });
    age(&node);
    assert_success(&gc(&node, "cni.dev/valid-attachments", &json!([])));
    assert!(node.in_host(|socket| socket.index_of(&name("vcnforeign")).is_ok()));
    let mut inside = Socket::open_in(&foreign.netns).unwrap();
    inside.change_link_named(&name("eth0"), &[LinkChange::Up]).unwrap();
}
