//! A bare metal node whose VNIC the agent took for the host's, before OKE's own CNI had named it for its pods. What the agent
//! made there goes, except the VLAN link, which may carry pods' interfaces that the host cannot see.

use std::process::Command;

use netlink::{LinkChange, Netns, Socket};
use sandbox::{Agent, Node, NpnShape};
use vcn::{Family, IfName, MachineKind, RulePriorities};

use super::{Cluster, timer_passes};
use crate::wait_for;

fn has_rules(node: &Node) -> bool {
    let mut socket = Socket::open_in(node.netns()).unwrap();
    let rules = Family::ALL.into_iter().flat_map(|family| socket.rules(family).unwrap()).collect::<Vec<_>>();
    rules.iter().any(|rule| rule.priority == RulePriorities::FROM_VNIC)
}

#[test]
#[ignore = "needs 802.1Q: run by tests/uml/run"]
fn vlan_link_with_foreign_pods_survives_handover_without_our_rules() {
    let configuration = "SIGNAL_NODE_LABEL=false\nDETACH_GRACE_SECONDS=1\nRESYNC_SECONDS=1\n";
    let cluster = Cluster::start_by(MachineKind::BareMetal, configuration, false);
    let node = cluster.node("node-a");
    let mut host = Socket::open_in(node.netns()).unwrap();
    wait_for("the VNIC to be the host's", || has_rules(node));
    let links = host.links().unwrap();
    let vlan = links.iter().find(|link| link.vlan.is_some()).unwrap();
    let (pod, eth0) = (Netns::create().unwrap(), "eth0".parse::<IfName>().unwrap());
    let made = ["link", "add", "link", vlan.name.as_str(), "name", "eth0", "type", "ipvlan", "mode", "l2"];
    assert!(node.netns().run(|| Command::new("ip").args(made).status()).unwrap().unwrap().success());
    host.change_link_named(&eth0, &[LinkChange::Netns(&pod)]).unwrap();

    sandbox::publish_native_pod_network(&cluster.vcn, node, NpnShape::PerFamily).unwrap();
    wait_for("what was made there to go", || !has_rules(node));
    // Beyond the grace.
    let before = timer_passes(node);
    wait_for("reconciles", || timer_passes(node) >= before + 5.0);
    let after = host.link_at(vlan.index).unwrap();
    assert_eq!((&after.name, after.mac, after.vlan), (&vlan.name, vlan.mac, vlan.vlan));
    assert!(pod.run(|| Socket::open().unwrap().link(&eth0)).unwrap().is_ok(), "the pod's went with it");
    let raised = Agent::metrics(node).unwrap();
    assert!(!raised.lines().any(|line| line.contains("LeftInPlace") && line.ends_with(" 1.0")), "{raised}");
}
