//! CHECK of pods where an agent keeps the node, on both kinds of machines: all that it asks for, and the kernel's own word on
//! where packets go, beside what the agent makes (rules, marks, the nft table, link-local routers).

use sandbox::Runtime;
use vcn::MachineKind;

use crate::{Cluster, on_node, reaches_both_families};

fn finds_nothing(kind: MachineKind) {
    let cluster = Cluster::start(kind);
    let pods = ["node-a", "node-b"].map(|node| (node, cluster.add(node, "pod")));
    let [(_, (a, on_a)), (_, (b, on_b))] = &pods;
    reaches_both_families(a, on_b);
    reaches_both_families(b, on_a);
    for (node, (pod, attachment)) in &pods {
        let node = cluster.node(node);
        Runtime::of(node).unwrap().check(pod, attachment).unwrap();
        let pools = on_node(node, "/run/vcn-native/pools.json");
        assert!(pools.contains("\"linkHasMac\": true"), "CHECK goes by it: {pools}");
    }
}

#[test]
fn check_finds_nothing_on_virtual_machines_that_agents_keep() {
    finds_nothing(MachineKind::Virtual);
}

#[test]
#[ignore = "needs 802.1Q: run by tests/uml/run"]
fn check_finds_nothing_on_bare_metal_that_agents_keep() {
    finds_nothing(MachineKind::BareMetal);
}
