//! Keys that are taken over at once: how long is waited, what may be written, which port is which, what may be taken over.

use std::fs;

use ipam::Assigned;
use vcn::Family;

use crate::aftercare::dual_stack_node;
use crate::metadata::{dual_stack, vnic};
use crate::node::{Agent, Node, name, wait_for};
use crate::pod::{Pod, store};

/// An agent that goes by its file alone.
fn configured(node: &Node, text: &str) -> Agent {
    node.deliver(1, text);
    let mut agent = node.agent_by_file();
    node.wait_ready(&mut agent);
    agent
}

fn looked_around(node: &Node, agent: &Agent) {
    let before = node.passes("timer");
    wait_for("passes", || node.passes("timer") >= before + 3, || agent.log());
}

#[test]
fn how_long_a_pod_must_have_been_gone_is_taken_over_at_once() {
    let node = dual_stack_node();
    let often = "RESYNC_SECONDS=1\n";
    let agent = configured(&node, &format!("{often}DEAD_AFTER_SECONDS=600\n"));
    let died = Pod::add(&node, "died");
    let addresses = died.addresses();
    drop(died);
    let held = || {
        let held = store(&node).read().unwrap().allocations;
        held.iter().flat_map(|it| it.addresses.iter().map(|Assigned { address, .. }| *address)).collect::<Vec<_>>()
    };
    looked_around(&node, &agent);
    assert_eq!(held(), addresses);
    node.deliver(2, &format!("{often}DEAD_AFTER_SECONDS=1\n"));
    wait_for("its addresses to be free", || held().is_empty(), || agent.log());
}

#[test]
fn how_long_a_vnic_must_have_been_gone_is_taken_over_at_once() {
    let node = dual_stack_node();
    node.plug("ens6", 34);
    let vnics = || vec![vnic("primary", 10), dual_stack("pods", 33)];
    node.metadata.set_vnics([vnics(), vec![vnic("more", 34)]].concat());
    let often = "RESYNC_SECONDS=1\n";
    let agent = configured(&node, &format!("{often}DETACH_GRACE_SECONDS=600\n"));
    let has_rule = || node.rules(Family::Ipv4).iter().any(|rule| rule.starts_with("1537 10.0.34.7/32"));
    wait_for("its rule", has_rule, || agent.log());
    node.metadata.set_vnics(vnics());
    node.on(|socket| socket.delete_link_named(&name("ens6")).unwrap());
    looked_around(&node, &agent);
    assert!(has_rule(), "{}", agent.log());
    node.deliver(2, &format!("{often}DETACH_GRACE_SECONDS=1\n"));
    wait_for("its rule to go", || !has_rule(), || agent.log());
}

#[test]
fn whether_drop_ins_may_be_written_is_taken_over_at_once() {
    let node = dual_stack_node();
    let state = node.path("host/run/systemd/netif/state");
    fs::create_dir_all(state.parent().unwrap()).unwrap();
    fs::write(state, "").unwrap();
    let agent = configured(&node, "HOST_DROP_INS=deny\n");
    let written = || fs::read_dir(node.path("host/etc/systemd/networkd.conf.d")).unwrap().count();
    assert_eq!(written(), 0);
    node.deliver(2, "HOST_DROP_INS=allow\n");
    wait_for("a drop-in", || written() == 1, || agent.log());
    node.deliver(3, "HOST_DROP_INS=deny\n");
    wait_for("it to go", || written() == 0, || agent.log());
}

/// Of a port whose address no link has only the operator can tell which it is.
#[test]
fn which_link_is_a_physical_port_is_taken_over_at_once() {
    let node = Node::new();
    node.plug("ens6", 77);
    let untagged = |name: &str, last, index: u8| {
        let mut vnic = vnic(name, last);
        (vnic["nicIndex"], vnic["vlanTag"]) = (index.into(), 0.into());
        vnic
    };
    node.metadata.set_vnics(vec![untagged("primary", 10, 0), untagged("second", 34, 1)]);
    node.deliver(1, "POD_NETWORK=none\nBM_PORT_0=\n");
    let agent = node.agent_by_file();
    wait_for("its condition", || node.conditions() == ["LinkMissing"], || agent.log());
    node.deliver(2, "POD_NETWORK=none\nBM_PORT_1=ens6\n");
    let rules = || node.rules(Family::Ipv4);
    wait_for("its rule", || rules() == ["1537 10.0.34.7/32 all 1000"], || format!("{:?}\n{}", rules(), agent.log()));
    wait_for("no condition", || node.conditions().is_empty(), || agent.log());
    // Nor has the primary VNIC's, if it is named: then the agent knows the host by it.
    node.metadata.set_vnics(vec![untagged("primary", 11, 0), untagged("second", 34, 1)]);
    let missing = || node.conditions().contains(&"PrimaryLinkMissing".to_owned());
    node.on(|socket| {
        let mac = netlink::LinkChange::Mac("02:00:17:00:00:63".parse().unwrap());
        socket.change_link_named(&name("ens3"), &[mac]).unwrap();
    });
    node.deliver(3, "POD_NETWORK=none\nBM_PORT_1=ens6\nRESYNC_SECONDS=1\n");
    wait_for("its condition", missing, || format!("{:?}\n{}", node.conditions(), agent.log()));
    node.deliver(4, "POD_NETWORK=none\nBM_PORT_1=ens6\nRESYNC_SECONDS=1\nBM_PORT_0=ens3\n");
    wait_for("its end", || !missing(), || format!("{:?}\n{}", node.conditions(), agent.log()));
}

#[test]
fn whether_a_node_is_taken_over_from_okes_cni_is_taken_over_at_once() {
    let node = dual_stack_node();
    let theirs = r#"{"name":"oci","cniVersion":"0.3.1","plugins":[{"type":"oci-ipvlan"}]}"#;
    fs::write(node.path("net.d/10-oci.conflist"), theirs).unwrap();
    let agent = configured(&node, "CNI_TAKEOVER=false\n");
    let why = || agent.events("pod_network.decided").pop().unwrap()["message"].as_str().unwrap().to_owned();
    assert!(why().ends_with("takeover is not set"), "{}", why());
    node.deliver(2, "CNI_TAKEOVER=true\n");
    // Nobody shows it the directories that tell.
    wait_for("another reason", || why().contains("takeover is set, but whether pods"), || agent.log());
    node.deliver(3, "CNI_TAKEOVER=false\n");
    wait_for("the first one", || why().ends_with("takeover is not set"), || agent.log());
}
