//! Records that are lost, old or damaged while the pods live: none loses its network to another's ADD, DEL or GC.

use std::fs;
use std::path::PathBuf;

use host_harness::assert_success;
use ipam::BootId;
use serde_json::json;
use vcn::Family;

use crate::node::{Node, Pod, address, host_link};

fn index(node: &Node) -> PathBuf {
    node.file("allocations.json")
}

fn lose_records(node: &Node) {
    fs::remove_dir_all(node.file("allocations")).unwrap();
}

/// Damages the records of pods whose identifiers begin so.
fn damage_records(node: &Node, of: &str) {
    for entry in fs::read_dir(node.file("allocations")).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_str().unwrap().starts_with(of) {
            fs::write(path, "{").unwrap();
        }
    }
}

/// The index holds nothing, and says that this address cooled down long ago.
fn write_stale_index(node: &Node, freed: &str) {
    let text = json!({"version": 1, "bootId": BootId::current().unwrap(), "held": "", "freed": format!("{freed}@1")});
    fs::write(index(node), text.to_string()).unwrap();
}

/// The addresses that cool down.
fn freed(node: &Node) -> Vec<String> {
    node.store().freed().unwrap().iter().map(|it| it.address.to_string()).collect()
}

fn goes_out(pod: &Pod) -> bool {
    pod.reaches("10.0.0.1")
}

#[test]
fn pod_with_lost_or_damaged_record_keeps_its_address_on_full_node() {
    let damage: fn(&Node) = |node| damage_records(node, "running");
    for (lose, collects) in [(lose_records as fn(&Node), false), (damage, false), (lose_records, true)] {
        let node = Node::with_addresses(&["10.0.0.9/32"]);
        let running = Pod::new("running");
        node.add(&running);
        lose(&node);
        if collects {
            assert_success(&node.gc(&["running"]));
        }
        let (code, text) = node.refusal("ADD", &Pod::new("next"));
        assert_eq!(code, 102, "{text}");
        assert!(goes_out(&running));
        assert_eq!(node.held(), 1, "it is on record again");
        node.del(&running);
        assert!(node.pod_rules(Family::Ipv4).is_empty() && node.held() == 0);
    }
}

/// Of before: the records are there, the index is as it was before them, and gives out what they hold.
#[test]
fn lost_damaged_or_stale_index_costs_no_pod_its_network() {
    let losses: [fn(&Node, &[u8]); 4] = [
        |node, before| fs::write(index(node), before).unwrap(),
        |node, before| {
            fs::write(index(node), before).unwrap();
            lose_records(node);
        },
        |node, _| fs::remove_file(index(node)).unwrap(),
        |node, _| fs::write(index(node), "{\"version\":1,").unwrap(),
    ];
    for (case, lose) in losses.into_iter().enumerate() {
        let node = Node::with_addresses(&["10.0.0.8/30"]);
        let [first, running, next] = ["first", "running", "next"].map(Pod::new);
        node.add(&first);
        let before = fs::read(index(&node)).unwrap();
        assert_eq!(address(&node.add(&running)), "10.0.0.9/32");
        lose(&node, &before);
        assert_eq!(address(&node.add(&next)), "10.0.0.10/32", "{case}: the one that no pod has");
        assert!([&first, &running, &next].into_iter().all(goes_out), "{case}");
        assert_eq!((node.held(), node.pod_rules(Family::Ipv4).len()), (3, 3), "{case}: all are on record");
        assert_eq!(node.file("allocations.json.damaged").exists(), case == 3);
        [&first, &running, &next].into_iter().for_each(|pod| node.del(pod));
        assert!(node.pod_rules(Family::Ipv4).is_empty(), "{case}");
    }
}

#[test]
fn damaged_record_frees_no_address_while_pools_are_unreadable() {
    let node = Node::with_addresses(&["10.0.0.8/31"]);
    let (running, goes, next) = (Pod::new("running"), Pod::new("goes"), Pod::new("next"));
    node.add(&running);
    node.add(&goes);
    damage_records(&node, "running");
    let pools = fs::read(node.file("pools.json")).unwrap();
    fs::write(node.file("pools.json"), "{").unwrap();
    assert_success(&node.gc(&["running", "goes"]));
    node.del(&goes);
    fs::write(node.file("pools.json"), pools).unwrap();
    assert_eq!(address(&node.add(&next)), "10.0.0.9/32");
    let (code, text) = node.refusal("ADD", &Pod::new("more"));
    assert!(code == 102 && text.contains("2 IPv4 address(es) in use"), "{text}");
    assert!(goes_out(&running) && goes_out(&next));
}

/// The kernel keeps 254 bytes of a link's alias: a longer key is there as a hash alone.
#[test]
fn pod_with_key_longer_than_alias_keeps_its_address() {
    for length in [226, 227, 228, 300] {
        let node = Node::with_addresses(&["10.0.0.8/31"]);
        let (running, before) = (Pod::new(&"c".repeat(length)), node.snapshot());
        node.add(&running);
        node.del(&running);
        assert_eq!(node.snapshot(), before, "{length}");
        // One whose addresses do not cool down.
        let node = Node::with_addresses(&["10.0.0.8/31"]);
        node.add(&running);
        lose_records(&node);
        fs::remove_file(index(&node)).unwrap();
        assert_eq!(address(&node.add(&Pod::new("next"))), "10.0.0.9/32", "{length}");
        assert_eq!(node.refusal("ADD", &Pod::new("more")).0, 102, "{length}");
        assert!(goes_out(&running), "{length}");
        node.del(&running);
        assert_eq!(address(&node.add(&Pod::new("more"))), "10.0.0.8/32", "{length}");
    }
}

/// Nothing is on record then but what the last DEL found out: the address cools down, and its connections are forgotten.
#[test]
fn del_without_any_record_starts_cooldown_of_found_address() {
    let node = Node::with_addresses(&["10.0.0.8/30"]);
    let (running, next) = (Pod::new("running"), Pod::new("next"));
    node.add(&running);
    lose_records(&node);
    fs::remove_file(index(&node)).unwrap();
    node.del(&running);
    assert_eq!(freed(&node), ["10.0.0.8"]);
    assert_eq!(
        node.last_run("DEL").addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["10.0.0.8"],
        "for its follow-up"
    );
    node.add(&next);
    let said = node.last_run("ADD").message;
    assert!(said.contains("had rested only"), "the others may have been a pod's: {said}");
}

/// An index of before, which lacks the pod, or has it that its address has rested for long.
#[test]
fn del_with_stale_index_starts_cooldown_of_address() {
    for before_that in ["", "10.0.0.9@1"] {
        let node = Node::with_addresses(&["10.0.0.8/30"]);
        let [stays, goes, next] = ["stays", "goes", "next"].map(Pod::new);
        node.add(&stays);
        let before = fs::read_to_string(index(&node)).unwrap();
        node.add(&goes);
        let old = before.replace("\"freed\":\"\"", &format!("\"freed\":\"{before_that}\""));
        assert_eq!(old.contains("@1"), !before_that.is_empty());
        fs::write(index(&node), old).unwrap();
        node.del(&goes);
        assert_eq!(freed(&node), ["10.0.0.9"]);
        assert!(node.store().freed().unwrap().iter().all(|it| it.at > ipam::BootTime(1)), "from now on");
        assert_eq!(address(&node.add(&next)), "10.0.0.10/32");
    }
}

/// As after an index of before, when the old pod's sandbox is taken down late.
#[test]
fn late_del_keeps_new_owner_of_the_address() {
    let node = Node::with_addresses(&["10.0.0.8/31"]);
    let (old, new) = (Pod::new("old"), Pod::new("new"));
    let link = host_link(&node.add(&old));
    // Its namespace is gone, and the index with it; the record is not.
    node.sh(&format!("ip link del {link}"));
    write_stale_index(&node, "10.0.0.9");
    assert_eq!(address(&node.add(&new)), "10.0.0.8/32");
    let whole = node.snapshot();
    node.del(&old);
    assert_eq!(node.snapshot(), whole);
    assert!(goes_out(&new));
}

/// An ADD that finds another's route makes neither rule nor proxy, and takes none with it.
#[test]
fn add_without_usable_address_keeps_network_of_unrecorded_pod() {
    let node = Node::with_addresses(&["10.0.0.8/32"]);
    let running = Pod::new("running");
    node.add(&running);
    lose_records(&node);
    write_stale_index(&node, "10.0.0.8");
    let whole = node.snapshot();
    let (code, text) = node.refusal("ADD", &Pod::new("next"));
    assert_eq!(code, 102, "{text}");
    assert_eq!(node.snapshot(), whole);
    assert!(goes_out(&running));
}

/// The index is as it was when others had the addresses, and on a full node the ADD searches what killed runs have left.
#[test]
fn repeated_add_recovers_unrecorded_running_pod_on_full_node() {
    let node = Node::with_addresses(&["10.0.0.8/31"]);
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
        let node = Node::with_addresses(&["10.0.0.8/31"]);
        let (before, next) = (Pod::new("before"), Pod::new("next"));
        let link = host_link(&node.add(&before));
        damage_records(&node, "before");
        fs::remove_file(index(&node)).unwrap();
        if !lives {
            node.sh(&format!("ip link del {link}"));
        }
        let given = node.add(&next);
        assert!(!lives || address(&given) == "10.0.0.9/32", "{given}");
        assert!(goes_out(&next) && (!lives || goes_out(&before)));
        let said = node.last_run("ADD").message;
        assert!(said.contains("had rested only"), "{said}");
    }
}
