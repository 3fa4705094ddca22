//! VNICs on a node of another pod network: OKE attaches those of its own CNI first, and names them last.

use std::fs;

use netlink::Link;
use vcn::{Family, Mtu};

use crate::metadata::vnic;
use crate::node::{Node, OKE, name, wait_for};
use crate::pod::Pod;

fn link(node: &Node, link: &str) -> (Link, Vec<String>, String) {
    let addresses = node.addresses(link);
    let link = node.on(|socket| socket.link(&name(link)).unwrap());
    let loose = node.sysctl(&format!("net/ipv4/conf/{}/rp_filter", link.name));
    (link, addresses, loose)
}

#[test]
fn vnic_of_okes_cni_is_never_changed() {
    let node = Node::new();
    node.metadata.set_vnics(vec![vnic("primary", 10)]);
    node.publish("BACKOFF", &[]);
    fs::write(node.path("net.d/10-oci.conflist"), OKE).unwrap();
    let agent = node.ready_agent(&[]);
    assert_eq!(node.conditions(), [""; 0]);

    node.plug("ens5", 33);
    node.plug("ens6", 34);
    let before = ["ens5", "ens6"].map(|it| link(&node, it));
    node.metadata.set_vnics(vec![vnic("primary", 10), vnic("pods", 33), vnic("storage", 34)]);
    let both = ["NativePodNetworkPending"; 2];
    wait_for("both to wait", || node.conditions() == both, || format!("{:?}\n{}", node.conditions(), agent.log()));
    node.wait_timer_passes(&agent, 3);
    assert_eq!(["ens5", "ens6"].map(|it| link(&node, it)), before);
    assert_eq!(node.rules(Family::Ipv4), [""; 0]);
    let (_, said) = node.run(&["status"]);
    assert_eq!(said.matches("not configured: NativePodNetworkPending").count(), 2, "{said}");

    node.publish("SUCCESS", &[("pods", 33)]);
    wait_for("the host's own", || node.routes(Family::Ipv4, 1001).len() == 2, || agent.log());
    node.wait_timer_passes(&agent, 3);
    assert_eq!(link(&node, "ens5"), before[0]);
    assert_eq!(node.rules(Family::Ipv4), ["1537 10.0.34.7/32 all 1001"]);
    assert!(node.routes(Family::Ipv4, 1000).is_empty() && node.pools().is_null());
    assert_eq!(node.conditions(), [""; 0]);
    assert_eq!(agent.events("pod_network.decided").last().unwrap()["decided_by"], "oke-conflist");
    let (_, said) = node.run(&["status"]);
    let state = |vnic: &str| said.lines().find(|line| line.contains(vnic)).unwrap().to_owned();
    assert!(state("iad.pods").ends_with("not configured: owned by another pod network"), "{said}");
    assert!(state("iad.storage").ends_with("in sync"), "{said}");
}

/// As an agent did it that took the VNIC for the host's.
#[test]
fn unused_configuration_of_oke_vnic_is_removed_without_its_link() {
    let node = Node::new();
    node.plug("ens5", 33);
    node.metadata.set_vnics(vec![vnic("primary", 10), vnic("pods", 33)]);
    let agent = node.ready_agent(&["--signal-node-label", "false"]);
    wait_for("what is made", || node.rules(Family::Ipv4) == ["1537 10.0.33.7/32 all 1000"], || agent.log());
    agent.stop();
    fs::write(node.path("net.d/10-oci.conflist"), OKE).unwrap();

    // Its owner is not known yet: it stays unchanged.
    node.publish("BACKOFF", &[]);
    let agent = node.ready_agent(&["--signal-node-label", "true"]);
    node.wait_timer_passes(&agent, 3);
    assert_eq!(node.rules(Family::Ipv4), ["1537 10.0.33.7/32 all 1000"]);
    assert_eq!(node.conditions(), ["NativePodNetworkPending"]);

    node.publish("SUCCESS", &[("pods", 33)]);
    wait_for("its end", || node.rules(Family::Ipv4).is_empty(), || agent.log());
    node.wait_conditions(&agent, &[]);
    let (link, addresses, _) = link(&node, "ens5");
    assert!(link.up && link.mtu == Mtu::VCN, "another program may use it by now");
    assert!(!addresses.contains(&"10.0.33.7/32".to_owned()), "{addresses:?}");
    assert_eq!(node.routes(Family::Ipv4, 1000), [""; 0]);
}

#[test]
fn network_of_running_pods_stays_on_an_oke_vnic() {
    let (node, agent) = Node::with_pods().with_agent(&[]);
    let _pod = Pod::add(&node, "a");
    let rules = node.rules(Family::Ipv4);
    agent.stop();
    // What was published is lost, and only the pod's own record is there.
    fs::remove_file(node.path("run/pools.json")).unwrap();
    fs::write(node.path("net.d/10-oci.conflist"), OKE).unwrap();
    let agent = node.agent(&[]);
    wait_for("a reconcile", || node.conditions().contains(&"LeftInPlace".to_owned()), || agent.log());
    node.wait_timer_passes(&agent, 3);
    assert_eq!(node.rules(Family::Ipv4), rules);
    assert_eq!(node.routes(Family::Ipv4, 1000).len(), 2);
    agent.stop();
}
