//! Our orphaned objects are removed, foreign ones stay, and no pod loses anything.

use netlink::{LinkChange, Neighbour, Rule};
use vcn::{Family, PROTOCOL, RulePriorities, TableId};

use crate::follow_up::dual_stack_node;
use crate::node::{name, wait_for};
use crate::pod::Pod;
use crate::pods::left;

fn rule(from: &str, protocol: u8) -> Rule {
    let from = Some(from.parse().unwrap());
    Rule { from, ..Rule::new(Family::Ipv4, RulePriorities::FROM_POD, TableId(1000), protocol) }
}

#[test]
fn only_our_own_orphaned_rules_and_proxies_are_removed() {
    let (node, agent) = dual_stack_node().with_agent(&[]);
    let (pod, adding) = (Pod::add(&node, "a"), Pod::add(&node, "b"));
    adding.reopen(&node);
    node.on(|socket| {
        let index = socket.index_of(&name("ens5")).unwrap();
        socket.add_rule(&rule("10.0.33.41/32", 4)).unwrap();
        socket.add_neighbour(&Neighbour::proxy(index, "10.0.33.41".parse().unwrap())).unwrap();
    });
    let before = left(&node);
    node.on(|socket| {
        let index = socket.index_of(&name("ens5")).unwrap();
        socket.add_rule(&rule("10.0.33.40/32", PROTOCOL)).unwrap();
        socket.add_neighbour(&Neighbour::proxy(index, "10.0.33.40".parse().unwrap()).by(PROTOCOL)).unwrap();
    });
    wait_for("them to go", || left(&node) == before, || format!("{:#?} of {before:#?}\n{}", left(&node), agent.log()));
    // The agent may have been faster than this test: compare only what was there.
    agent.wait_said("host.repaired", "rule del pref 1536 from 10.0.33.40 lookup 1000 (of no pod)");
    agent.wait_said("host.repaired", "neigh del proxy 10.0.33.40 dev ens5 (of no pod)");
    pod.wait_connected();
}

/// As after a lost record: the next ADD restores it from the kernel.
#[test]
fn pod_with_lost_record_keeps_its_network() {
    let (node, agent) = dual_stack_node().with_agent(&[]);
    let pod = Pod::add(&node, "a");
    let whole = left(&node);
    pod.release(&node);
    let looks = || node.passes("timer");
    let begun = looks();
    wait_for("four reconciles", || looks() >= begun + 4, || agent.log());
    assert_eq!(left(&node), whole);
    pod.wait_connected();
}

#[test]
fn pod_leaves_nothing_after_its_vnic_link_was_renamed() {
    let (node, agent) = dual_stack_node().with_agent(&[]);
    let nothing = left(&node);
    let pod = Pod::add(&node, "a");
    // While it is up, or its proxies would go.
    node.on(|socket| {
        let index = socket.index_of(&name("ens5")).unwrap();
        socket.change_link(index, &[LinkChange::Rename(name("storage0"))]).unwrap();
    });
    // DEL knows the link by its old name.
    pod.del(&node);
    wait_for("nothing to be left", || left(&node) == nothing, || format!("{:#?}\n{}", left(&node), agent.log()));
    for address in pod.addresses() {
        agent.wait_said("host.repaired", &format!("neigh del proxy {address} dev storage0 (of no pod)"));
    }
}
