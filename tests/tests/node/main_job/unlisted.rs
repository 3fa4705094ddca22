//! A VNIC of bare metal that the metadata service does not list, although the NativePodNetwork names it. New pods get its
//! addresses only while the node has no other VNIC for pods, because the VNIC may be detached while its link stays.

use sandbox::{Agent, Attachment, MetadataFault, Node, NpnShape, VnicSpec};
use vcn::MachineKind;

use super::{Cluster, on_node, reaches_both_families};
use crate::wait_for;

fn in_pools(node: &Node, id: &str) -> bool {
    on_node(node, "/run/vcn-native/pools.json").contains(&format!("\"vnicId\": \"{id}\""))
}

/// The reason in the pools for a pod that gets no address.
fn is_said(node: &Node, words: &str) -> bool {
    on_node(node, "/run/vcn-native/pools.json").contains(words)
}

#[test]
#[ignore = "needs 802.1Q: run by tests/uml/run"]
fn unlisted_vlan_vnic_serves_new_pods_until_another_one_does() {
    let cluster = Cluster::start_as(MachineKind::BareMetal, "DETACH_GRACE_SECONDS=1\nRESYNC_SECONDS=1\n");
    let node = cluster.node("node-a");
    let vnic = node.vnics().into_iter().nth(1).unwrap();
    let id = vnic.id.to_string();
    let of_vnic = |attachment: &Attachment| {
        let given = vnic.secondary.ipv4.iter().flatten().copied().collect::<Vec<_>>();
        attachment.addresses().any(|address| given.contains(&address))
    };
    let (b, _) = cluster.add("node-b", "b");

    node.set_metadata_fault(Some(MetadataFault::Without(vnic.id.clone())));
    wait_for("it to be reported", || is_said(node, "because the node has no other VNIC for pods"));
    assert!(in_pools(node, &id), "{}", Agent::log(node).unwrap());
    let (_a, on_a) = cluster.add("node-a", "a");
    assert!(of_vnic(&on_a));
    reaches_both_families(&b, &on_a);

    let other = cluster.vcn.attach_vnic("node-a", &VnicSpec::for_pods("pods", 4)).unwrap().id.to_string();
    sandbox::publish_native_pod_network(&cluster.vcn, node, NpnShape::PerFamily).unwrap();
    wait_for("the other VNIC alone in the pools", || in_pools(node, &other) && !in_pools(node, &id));
    assert!(is_said(node, "new pods get no address of it"));
    reaches_both_families(&b, &on_a);
    // OCI detaches it; the NativePodNetwork still names it.
    cluster.vcn.detach_vnic("node-a", &vnic.id).unwrap();
    for pod in ["c", "d"] {
        let (_pod, on_pod) = cluster.add("node-a", pod);
        assert!(!of_vnic(&on_pod));
        reaches_both_families(&b, &on_pod);
    }
    let links = node.command("ip").args(["-d", "link", "show", "nic0.1"]).output().unwrap();
    assert!(links.status.success(), "what running pods have of it stays");
}
