//! Records that are lost, old or damaged while the pods live: none loses its network to another's ADD, DEL or GC.

use std::fs;
use std::path::PathBuf;

use ipam::{BootId, Store};
use serde_json::json;
use vcn::Family;

use crate::node::{Families, Node, Pod, assert_success, error_of};

/// A node of which one VNIC serves pods, with these IPv4 addresses.
fn node_with(addresses: &[&str]) -> Node {
    let node = Node::new(Families::V4);
    let mut vnics = node.pools().vnics;
    vnics.truncate(1);
    vnics[0].families.ipv4.as_mut().unwrap().addresses =
        addresses.iter().map(|address| address.parse().unwrap()).collect();
    node.write_pools(vnics);
    node
}

fn index(node: &Node) -> PathBuf {
    node.state.path().join("allocations.json")
}

fn lose_records(node: &Node) {
    fs::remove_dir_all(node.state.path().join("allocations")).unwrap();
}

fn store(node: &Node) -> Store {
    Store::new(node.state.path(), BootId::current().unwrap())
}

fn address(answer: &serde_json::Value) -> &str {
    answer["ips"][0]["address"].as_str().unwrap()
}

fn gc(node: &Node, valid: &[&str]) {
    let mut conf = node.conf("1.1.0");
    let valid: Vec<_> = valid.iter().map(|id| json!({"containerID": id, "ifname": "eth0"})).collect();
    conf["cni.dev/valid-attachments"] = json!(valid);
    assert_success(&node.call(&[("CNI_COMMAND", "GC")], &conf));
}

fn goes_out(pod: &Pod) -> bool {
    pod.reaches("10.0.0.1")
}

#[test]
fn add_on_full_node_keeps_pod_with_lost_record() {
    let node = node_with(&["10.0.0.9/32"]);
    let running = Pod::new("running");
    node.add(&running);
    lose_records(&node);
    let (code, text) = error_of(&node.cni("ADD", &Pod::new("next"), &node.conf("1.0.0")));
    assert_eq!(code, 102, "{text}");
    assert!(goes_out(&running));
    assert_eq!(node.allocations().allocations.len(), 1, "it is on record again");
}

#[test]
fn add_reports_full_node_when_a_record_is_damaged() {
    let node = node_with(&["10.0.0.9/32"]);
    let running = Pod::new("running");
    node.add(&running);
    for entry in fs::read_dir(node.state.path().join("allocations")).unwrap() {
        fs::write(entry.unwrap().path(), "{").unwrap();
    }
    let (code, text) = error_of(&node.cni("ADD", &Pod::new("next"), &node.conf("1.0.0")));
    assert_eq!(code, 102, "{text}");
    assert!(goes_out(&running));
    assert_eq!(node.allocations().allocations.len(), 1, "and it is on record again");
}

#[test]
fn gc_keeps_addresses_of_pod_with_lost_record() {
    let node = node_with(&["10.0.0.9/32"]);
    let running = Pod::new("running");
    node.add(&running);
    lose_records(&node);
    gc(&node, &["running"]);
    assert_eq!(error_of(&node.cni("ADD", &Pod::new("next"), &node.conf("1.0.0"))).0, 102);
    assert!(goes_out(&running));
    node.del(&running);
    assert!(node.pod_rules(Family::Ipv4).is_empty() && node.allocations().allocations.is_empty());
}

/// The records are there, the index is as it was before them, and gives out what they hold.
#[test]
fn an_index_of_before_costs_no_pod_its_network() {
    for lost_too in [false, true] {
        let node = node_with(&["10.0.0.8/30"]);
        let [first, running, next] = ["first", "running", "next"].map(Pod::new);
        node.add(&first);
        let before = fs::read(index(&node)).unwrap();
        assert_eq!(address(&node.add(&running)), "10.0.0.9/32");
        fs::write(index(&node), before).unwrap();
        if lost_too {
            lose_records(&node);
        }
        assert_eq!(address(&node.add(&next)), "10.0.0.10/32", "the one that no pod has");
        assert!([&first, &running, &next].into_iter().all(goes_out));
        assert_eq!(node.allocations().allocations.len(), 3, "all are on record");
        assert_eq!(node.pod_rules(Family::Ipv4).len(), 3);
    }
}

#[test]
fn damaged_record_frees_no_address_while_pools_are_unreadable() {
    let node = node_with(&["10.0.0.8/31"]);
    let (running, goes, next) = (Pod::new("running"), Pod::new("goes"), Pod::new("next"));
    node.add(&running);
    node.add(&goes);
    for entry in fs::read_dir(node.state.path().join("allocations")).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_str().unwrap().starts_with("running") {
            fs::write(path, "{").unwrap();
        }
    }
    let pools = fs::read(node.state.path().join("pools.json")).unwrap();
    fs::write(node.state.path().join("pools.json"), "{").unwrap();
    gc(&node, &["running", "goes"]);
    node.del(&goes);
    fs::write(node.state.path().join("pools.json"), pools).unwrap();
    assert_eq!(address(&node.add(&next)), "10.0.0.9/32");
    let (code, text) = error_of(&node.cni("ADD", &Pod::new("more"), &node.conf("1.0.0")));
    assert!(code == 102 && text.contains("2 IPv4 address(es) in use"), "{text}");
    assert!(goes_out(&running) && goes_out(&next));
}

/// The kernel keeps 254 bytes of a link's alias: a longer key is there as a hash alone.
#[test]
fn pod_with_key_longer_than_alias_keeps_its_address() {
    let node = node_with(&["10.0.0.8/31"]);
    let running = Pod::new(&"long".repeat(60));
    node.add(&running);
    lose_records(&node);
    fs::remove_file(index(&node)).unwrap();
    assert_eq!(address(&node.add(&Pod::new("next"))), "10.0.0.9/32");
    assert_eq!(error_of(&node.cni("ADD", &Pod::new("more"), &node.conf("1.0.0"))).0, 102);
    assert!(goes_out(&running));
    node.del(&running);
    assert_eq!(address(&node.add(&Pod::new("more"))), "10.0.0.8/32");
}

/// Nothing is on record then but what the last DEL found out: the address cools down, and its connections are forgotten.
#[test]
fn del_without_any_record_starts_cooldown_of_found_address() {
    let node = node_with(&["10.0.0.8/30"]);
    let (running, next) = (Pod::new("running"), Pod::new("next"));
    node.add(&running);
    lose_records(&node);
    fs::remove_file(index(&node)).unwrap();
    node.del(&running);
    let freed: Vec<_> = store(&node).freed().unwrap().iter().map(|it| it.address.to_string()).collect();
    assert_eq!(freed, ["10.0.0.8"]);
    let records = telemetry::read_log(node.state.path()).unwrap();
    let del = records.iter().rfind(|record| record.verb == "DEL").unwrap();
    assert_eq!(del.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.0.0.8"], "for its follow-up");
    node.add(&next);
    let records = telemetry::read_log(node.state.path()).unwrap();
    let add = records.iter().rfind(|record| record.verb == "ADD").unwrap();
    assert!(add.message.contains("had rested only"), "the others may have been a pod's: {}", add.message);
}

/// An index of before, which lacks the pod, or has it that its address has rested for long.
#[test]
fn del_with_stale_index_starts_cooldown_of_address() {
    for freed in ["", "10.0.0.9@1"] {
        let node = node_with(&["10.0.0.8/30"]);
        let [stays, goes, next] = ["stays", "goes", "next"].map(Pod::new);
        node.add(&stays);
        let before = fs::read_to_string(index(&node)).unwrap();
        node.add(&goes);
        let old = before.replace("\"freed\":\"\"", &format!("\"freed\":\"{freed}\""));
        assert_eq!(old.contains("@1"), !freed.is_empty());
        fs::write(index(&node), old).unwrap();
        node.del(&goes);
        let rests: Vec<_> = store(&node).freed().unwrap().iter().map(|it| it.address.to_string()).collect();
        assert_eq!(rests, ["10.0.0.9"]);
        assert!(store(&node).freed().unwrap().iter().all(|it| it.at > ipam::BootTime(1)), "from now on");
        assert_eq!(address(&node.add(&next)), "10.0.0.10/32");
    }
}

/// As after an index of before, when the old pod's sandbox is taken down late.
#[test]
fn late_del_keeps_new_owner_of_the_address() {
    let node = node_with(&["10.0.0.8/31"]);
    let (old, new) = (Pod::new("old"), Pod::new("new"));
    let before = node.add(&old);
    let host_link = before["interfaces"][0]["name"].as_str().unwrap().to_owned();
    // Its namespace is gone, and the index with it; the record is not.
    node.in_host(|socket| socket.delete_link_named(&crate::node::name(&host_link)).unwrap());
    fs::write(
        index(&node),
        json!({"version": 1, "bootId": BootId::current().unwrap(), "held": "", "freed": "10.0.0.9@1"}).to_string(),
    )
    .unwrap();
    assert_eq!(address(&node.add(&new)), "10.0.0.8/32");
    let whole = node.snapshot();
    node.del(&old);
    assert_eq!(node.snapshot(), whole);
    assert!(goes_out(&new));
}

/// An ADD that finds another's route makes neither rule nor proxy, and takes none with it.
#[test]
fn add_without_usable_address_keeps_network_of_unrecorded_pod() {
    let node = node_with(&["10.0.0.8/32"]);
    let running = Pod::new("running");
    node.add(&running);
    lose_records(&node);
    fs::write(
        index(&node),
        json!({"version": 1, "bootId": BootId::current().unwrap(), "held": "", "freed": "10.0.0.8@1"}).to_string(),
    )
    .unwrap();
    let whole = node.snapshot();
    let (code, text) = error_of(&node.cni("ADD", &Pod::new("next"), &node.conf("1.0.0")));
    assert_eq!(code, 102, "{text}");
    assert_eq!(node.snapshot(), whole);
    assert!(goes_out(&running));
}

/// The index is as it was when others had the addresses, and on a full node the ADD searches what killed runs have left.
#[test]
fn repeated_add_recovers_unrecorded_running_pod_on_full_node() {
    let node = node_with(&["10.0.0.8/31"]);
    let [first, second, running] = ["first", "second", "running"].map(Pod::new);
    node.add(&first);
    node.add(&second);
    let before = fs::read(index(&node)).unwrap();
    node.del(&first);
    node.del(&second);
    fs::remove_file(index(&node)).unwrap();
    assert_eq!(address(&node.add(&running)), "10.0.0.8/32");
    fs::write(index(&node), before).unwrap();
    lose_records(&node);
    let whole = node.snapshot();
    assert_eq!(address(&node.add(&running)), "10.0.0.8/32");
    assert_eq!(node.snapshot(), whole, "the pod is in use");
    assert!(goes_out(&running));
    assert_eq!(address(&node.add(&Pod::new("next"))), "10.0.0.9/32", "what the killed run had");
}

/// What it held is unknown then: so all addresses count as used until now.
#[test]
fn add_succeeds_with_damaged_record_without_freeing_its_address() {
    for lives in [true, false] {
        let node = node_with(&["10.0.0.8/31"]);
        let (before, next) = (Pod::new("before"), Pod::new("next"));
        let host_link = node.add(&before)["interfaces"][0]["name"].as_str().unwrap().to_owned();
        let records = fs::read_dir(node.state.path().join("allocations")).unwrap();
        records.for_each(|entry| fs::write(entry.unwrap().path(), "{").unwrap());
        fs::remove_file(index(&node)).unwrap();
        if !lives {
            node.in_host(|socket| socket.delete_link_named(&crate::node::name(&host_link)).unwrap());
        }
        let given = node.add(&next);
        assert!(!lives || address(&given) == "10.0.0.9/32", "{given}");
        assert!(goes_out(&next) && (!lives || goes_out(&before)));
        let records = telemetry::read_log(node.state.path()).unwrap();
        let add = records.iter().rfind(|record| record.verb == "ADD").unwrap();
        assert!(add.message.contains("had rested only"), "{}", add.message);
    }
}
