//! Keys that are taken over at once: how long is waited, what may be written, which port is which, what may be taken over,
//! what pods get and may do.

use std::fs;

use ipam::Assigned;
use netlink::nft;
use vcn::Family;

use crate::aftercare::dual_stack_node;
use crate::configuration::configured_at_rest;
use crate::metadata::{dual_stack, vnic};
use crate::node::{Agent, Node, OKE, name, wait_for};
use crate::pod::{Pod, store};
use crate::program::node_with_pods;

/// An agent that goes by its file alone.
fn configured(node: &Node, text: &str) -> Agent {
    node.deliver(1, text);
    let mut agent = node.agent_by_file();
    node.wait_ready(&mut agent);
    agent
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
    node.wait_timer_passes(&agent, 3);
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
    node.wait_timer_passes(&agent, 3);
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
    fs::write(node.path("net.d/10-oci.conflist"), OKE).unwrap();
    let agent = configured(&node, "CNI_TAKEOVER=false\n");
    let why = || agent.events("pod_network.decided").pop().unwrap()["message"].as_str().unwrap().to_owned();
    assert!(why().ends_with("takeover is not set"), "{}", why());
    node.deliver(2, "CNI_TAKEOVER=true\n");
    // Nobody shows it the directories that tell.
    wait_for("another reason", || why().contains("takeover is set, but pods"), || agent.log());
    node.deliver(3, "CNI_TAKEOVER=false\n");
    wait_for("the first one", || why().ends_with("takeover is not set"), || agent.log());
}

#[test]
fn what_pods_configuration_is_made_of_is_taken_over_at_once() {
    let node = node_with_pods();
    let agent = configured_at_rest(&node, "POD_MTU=1500\n");
    let conflist = || fs::read_to_string(node.path("net.d").join(vcn::CONFLIST_FILE)).unwrap();
    assert!(conflist().contains("\"mtu\": 1500"), "{}", conflist());
    sandbox::copy_program(&node.path("source/vcn-native"), &node.path("bin/bandwidth")).unwrap();
    // Until the installer has nothing more to do: what it said then is what would be repeated.
    let looked = || node.run(&["plan"]).1.contains("Nothing would be changed");
    wait_for("all to be in order", looked, || node.run(&["plan"]).1);
    let passes = node.passes("settings");
    node.deliver(2, "POD_MTU=1500\nLOG_LEVEL=debug\n");
    wait_for("a pass that changes nothing", || node.passes("settings") > passes, || agent.log());
    node.deliver(3, "POD_MTU=8500\n");
    wait_for("another MTU", || conflist().contains("\"mtu\": 8500"), || format!("{}\n{}", conflist(), agent.log()));
    node.deliver(4, "POD_MTU=8500\nCNI_CHAIN=bandwidth\n");
    wait_for("another chain", || conflist().contains("\"bandwidth\""), || format!("{}\n{}", conflist(), agent.log()));
}

#[test]
fn what_decides_whose_the_pod_network_is_is_taken_over_at_once() {
    let node = node_with_pods();
    let agent = configured_at_rest(&node, "LOG_LEVEL=info\n");
    let decided = || {
        let told = agent.events("pod_network.decided").pop().unwrap();
        (told["install"].as_bool().unwrap(), told["decided_by"].as_str().unwrap().to_owned())
    };
    for (version, (text, install, by)) in (2..).zip([
        ("POD_NETWORK=none\n", false, "setting"),
        ("POD_NETWORK=vcn-native\n", true, "setting"),
        ("SIGNAL_NODE_LABEL=false\n", false, "node-label"),
        ("SIGNAL_NODE_LABEL=true\n", true, "node-label"),
        ("SIGNAL_FLANNEL_DAEMONSET=present\nPOD_NETWORK=vcn-native\n", true, "setting"),
    ]) {
        node.deliver(version, text);
        wait_for(text, || decided() == (install, by.to_owned()), || agent.log());
    }
}

#[test]
fn whether_pods_may_spoof_is_taken_over_at_once() {
    let node = node_with_pods();
    let agent = configured_at_rest(&node, "PODS_MAY_SPOOF=deny\n");
    let rules = || {
        let table = node.inside(|| nft::Socket::open().unwrap().table(nft::TableFamily::Inet, vcn::NFT_TABLE).unwrap());
        table.map(|table| table.comments().map(|(_, text)| text.to_owned()).collect::<Vec<_>>()).unwrap_or_default()
    };
    let checked = rules();
    node.deliver(2, "PODS_MAY_SPOOF=allow\n");
    wait_for("the check to go", || (1..checked.len()).contains(&rules().len()), || agent.log());
    node.deliver(3, "PODS_MAY_SPOOF=deny\n");
    wait_for("the check to be back", || rules() == checked, || agent.log());
}
