//! A VNIC whose link the host has lost, while no agent takes it out of the pools: pods get addresses of the others.

use std::fs;

use netlink::LinkChange;
use serde_json::Value;
use vcn::Family;

use crate::node::{Families, Node, Pod, error_of, name};

fn lose(node: &Node, link: &str) {
    node.in_host(|socket| socket.delete_link_named(&name(link)).unwrap());
}

/// What an operator reads of the last run.
fn last_line(node: &Node) -> Value {
    let log = fs::read_to_string(node.state.path().join("verbs.log")).unwrap();
    serde_json::from_str(log.lines().last().unwrap()).unwrap()
}

#[test]
fn pods_get_the_addresses_of_the_vnics_that_are_there() {
    for (families, router) in [(Families::V4, "10.0.0.1"), (Families::V6, "2001:db8::1")] {
        let node = Node::new(families);
        node.add(&Pod::new("first"));
        lose(&node, "ens6");
        // The VNIC with the fewest pods is the one that is gone, every time.
        for number in 0..7 {
            let pod = Pod::new(&format!("p{number}"));
            node.add(&pod);
            let line = last_line(&node);
            assert!(line["message"].as_str().unwrap().contains("the host has no link ens6"), "{line}");
            assert_eq!(line["addresses"].as_array().unwrap().len(), 1, "{line}");
            assert!(pod.reaches(router));
        }
        let held = node.allocations();
        assert!(held.allocations.iter().all(|held| held.addresses[0].vnic_link == name("ens5")), "{held:?}");
        let rules: usize = Family::ALL.into_iter().map(|family| node.pod_rules(family).len()).sum();
        assert_eq!(rules, 8, "none is left of the tries");
    }
}

#[test]
fn add_names_missing_vnic_link_when_no_address_is_free() {
    let node = Node::new(Families::V4);
    lose(&node, "ens6");
    let pods: Vec<_> = (0..8).map(|number| Pod::new(&format!("p{number}"))).collect();
    pods.iter().for_each(|pod| drop(node.add(pod)));
    let (code, text) = error_of(&node.cni("ADD", &Pod::new("more"), &node.conf("1.0.0")));
    assert_eq!(code, 104, "{text}");
    assert!(text.contains("dev ens6") && text.contains("nor by another VNIC: no address is free"), "{text}");
    lose(&node, "ens5");
    let (code, text) = error_of(&node.cni("ADD", &Pod::new("more"), &node.conf("1.0.0")));
    assert!(code == 104 && text.contains("dev ens6"), "{text}");
    assert_eq!(node.allocations().allocations.len(), 8, "no try holds anything");
}

/// Nothing is refused there: the kernel takes routes and proxies of a link that is down, and forwards nothing.
#[test]
fn add_skips_vnic_while_its_link_is_down() {
    let node = Node::new(Families::Dual);
    let lower = |link| node.in_host(|socket| socket.change_link_named(&name(link), &[LinkChange::Down]).unwrap());
    node.add(&Pod::new("first"));
    lower("ens6");
    for number in 0..3 {
        let pod = Pod::new(&format!("p{number}"));
        node.add(&pod);
        let line = last_line(&node);
        assert!(line["message"].as_str().unwrap().contains("link ens6 is down: its VNIC is passed over"), "{line}");
        assert!(pod.reaches("10.0.0.1"));
    }
    lower("ens5");
    let (code, text) = error_of(&node.cni("ADD", &Pod::new("more"), &node.conf("1.0.0")));
    assert!(code == 104 && text.contains("is down; `ip link set ens"), "{text}");
    assert_eq!(node.allocations().allocations.len(), 4, "no try holds anything");
    node.in_host(|socket| socket.change_link_named(&name("ens6"), &[LinkChange::Up]).unwrap());
    let pod = Pod::new("more");
    node.add(&pod);
    assert_eq!(node.allocations().allocations.iter().filter(|it| it.addresses[0].vnic_link == name("ens6")).count(), 1);
}

#[test]
fn a_pod_gets_both_families_or_none() {
    let node = Node::new(Families::Dual);
    let mut vnics = node.pools().vnics;
    vnics[0].families.ipv6 = None;
    node.write_pools(vnics);
    lose(&node, "ens6");
    let (code, text) = error_of(&node.cni("ADD", &Pod::new("a"), &node.conf("1.0.0")));
    assert!(code == 104 && text.contains("dev ens6"), "{text}");
    assert!(node.allocations().allocations.is_empty());
}
