//! A VNIC of bare metal that the metadata service does not list, although the NativePodNetwork names it: new pods get its
//! addresses where it still carries packets, and not where it was detached.

use std::fs;

use sandbox::{Agent, Attachment, MetadataFault, Node};
use vcn::MachineKind;

use super::{Cluster, on_node, reaches_both_families, timer_passes};
use crate::wait_for;

/// The kernel hopes less long that answers of before still hold.
fn doubt_soon(node: &Node, link: &str) {
    let setting = |family| format!("/proc/sys/net/{family}/neigh/{link}/base_reachable_time_ms");
    node.run(|| ["ipv4", "ipv6"].iter().try_for_each(|family| fs::write(setting(family), "1000"))).unwrap().unwrap();
}

fn in_pools(node: &Node, id: &str) -> bool {
    on_node(node, "/run/vcn-native/pools.json").contains(&format!("\"vnicId\": \"{id}\""))
}

/// The reason in the pools for a pod that gets no address.
fn is_said(node: &Node, words: &str) -> bool {
    on_node(node, "/run/vcn-native/pools.json").contains(words)
}

#[test]
#[ignore = "needs 802.1Q: run by tests/uml/run"]
fn unlisted_vlan_vnic_serves_new_pods_until_it_is_detached() {
    let cluster = Cluster::start_as(MachineKind::BareMetal, "DETACH_GRACE_SECONDS=1\nRESYNC_SECONDS=1\n");
    let node = cluster.node("node-a");
    let vnic = node.vnics().into_iter().nth(1).unwrap();
    let id = vnic.id.to_string();
    let of_vnic = |attachment: &Attachment| {
        let given = vnic.secondary.ipv4.iter().flatten().copied().collect::<Vec<_>>();
        attachment.addresses().any(|address| given.contains(&address))
    };
    doubt_soon(node, "nic0.1");
    let (b, _) = cluster.add("node-b", "b");

    node.set_metadata_fault(Some(MetadataFault::Without(vnic.id.clone())));
    wait_for("it to be reported", || is_said(node, "no longer lists it; it is kept"));
    // Longer than the kernel takes to find out that no neighbour answers.
    let before = timer_passes(node);
    wait_for("reconciles", || timer_passes(node) >= before + 15.0);
    assert!(in_pools(node, &id) && is_said(node, "no longer lists it; it is kept"), "{}", Agent::log(node).unwrap());
    let (_a, on_a) = cluster.add("node-a", "a");
    assert!(of_vnic(&on_a));
    reaches_both_families(&b, &on_a);

    cluster.vcn.detach_vnic("node-a", &vnic.id).unwrap();
    wait_for("the pools to forget it", || !in_pools(node, &id));
    assert!(is_said(node, "no new pod gets its addresses"));
    let links = node.command("ip").args(["-d", "link", "show", "nic0.1"]).output().unwrap();
    assert!(links.status.success(), "what running pods have of it stays");
}
