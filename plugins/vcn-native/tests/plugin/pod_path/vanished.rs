//! A VNIC whose link the host has lost, while no agent takes it out of the pools: pods get addresses of the others.

use host_harness::{Families, name};
use vcn::Family;

use crate::node::{Node, Pod};

#[test]
fn pods_get_the_addresses_of_the_vnics_that_are_there() {
    for (families, router) in [(Families::V4, "10.0.0.1"), (Families::V6, "2001:db8::1")] {
        let node = Node::new(families);
        node.add(&Pod::new("first"));
        node.sh("ip link del ens6");
        // The VNIC with the fewest pods is the one that is gone, every time.
        for number in 0..7 {
            let pod = Pod::new(&format!("p{number}"));
            node.add(&pod);
            let run = node.last_run("ADD");
            assert!(run.message.contains("the host has no link ens6") && run.addresses.len() == 1, "{run:?}");
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
    node.sh("ip link del ens6");
    let pods: Vec<_> = (0..8).map(|number| Pod::new(&format!("p{number}"))).collect();
    pods.iter().for_each(|pod| drop(node.add(pod)));
    let (code, text) = node.refusal("ADD", &Pod::new("more"));
    assert_eq!(code, 104, "{text}");
    assert!(text.contains("dev ens6") && text.contains("nor by another VNIC: no address is free"), "{text}");
    node.sh("ip link del ens5");
    let (code, text) = node.refusal("ADD", &Pod::new("more"));
    assert!(code == 104 && text.contains("dev ens6"), "{text}");
    assert_eq!(node.held(), 8, "no try holds anything");
}

/// Nothing is refused there: the kernel takes routes and proxies of a link that is down, and forwards nothing.
#[test]
fn add_skips_vnic_while_its_link_is_down() {
    let node = Node::new(Families::Dual);
    node.add(&Pod::new("first"));
    node.sh("ip link set ens6 down");
    for number in 0..3 {
        let pod = Pod::new(&format!("p{number}"));
        node.add(&pod);
        let said = node.last_run("ADD").message;
        assert!(said.contains("link ens6 is down: its VNIC is skipped"), "{said}");
        assert!(pod.reaches("10.0.0.1"));
    }
    node.sh("ip link set ens5 down");
    let (code, text) = node.refusal("ADD", &Pod::new("more"));
    assert!(code == 104 && text.contains("is down; `ip link set ens"), "{text}");
    assert_eq!(node.held(), 4, "no try holds anything");
    node.sh("ip link set ens6 up");
    let pod = Pod::new("more");
    node.add(&pod);
    assert_eq!(node.allocations().allocations.iter().filter(|it| it.addresses[0].vnic_link == name("ens6")).count(), 1);
}

#[test]
fn a_pod_gets_both_families_or_none() {
    let node = Node::new(Families::Dual);
    node.change_pools(|vnics| vnics[0].families.ipv6 = None);
    node.sh("ip link del ens6");
    let (code, text) = node.refusal("ADD", &Pod::new("a"));
    assert!(code == 104 && text.contains("dev ens6"), "{text}");
    assert!(node.held() == 0);
}
