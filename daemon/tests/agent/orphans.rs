//! Our orphaned objects are removed, foreign ones stay, and no pod loses anything.

use crate::follow_up::dual_stack_node;
use crate::node::wait_for;
use crate::pod::Pod;
use crate::pods::left;

#[test]
fn only_our_own_orphaned_rules_and_proxies_are_removed() {
    let (node, agent) = dual_stack_node().with_agent(&[]);
    let (pod, adding) = (Pod::add(&node, "a"), Pod::add(&node, "b"));
    adding.reopen(&node);
    node.sh("ip rule add pref 1536 from 10.0.33.41 lookup 1000 proto 4; ip neigh add proxy 10.0.33.41 dev ens5");
    let before = left(&node);
    node.sh("ip rule add pref 1536 from 10.0.33.40 lookup 1000 proto 157
         ip neigh add proxy 10.0.33.40 dev ens5 protocol 157");
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
    node.sh("ip link set ens5 name storage0");
    // DEL knows the link by its old name.
    pod.del(&node);
    wait_for("nothing to be left", || left(&node) == nothing, || format!("{:#?}\n{}", left(&node), agent.log()));
    // Only the IPv6 one is sure to be left to the agent. The kernel drops those of IPv4 with the link's last IPv4 address, which
    // a reconcile in the middle of the renaming removes for a moment.
    for address in pod.addresses().iter().filter(|address| address.is_ipv6()) {
        agent.wait_said("host.repaired", &format!("neigh del proxy {address} dev storage0 (of no pod)"));
    }
}
