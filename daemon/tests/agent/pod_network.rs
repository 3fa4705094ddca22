//! Which pod network owns the node, and what is installed when.

use std::fs;
use std::process::Command;

use netlink::nft;
use vcn::{CONFLIST_FILE, Family};

use crate::metadata::vnic;
use crate::node::{Node, OKE, SLOW_RESYNC, wait_for};
use crate::pod::Pod;
use crate::running::at_once;

const FLANNEL: &str = r#"{"name":"cbr0","cniVersion":"0.3.1","plugins":[{"type":"flannel"}]}"#;

const LAST_ANSWERS: &str = "lib/vnics-seen.json";

/// With a VNIC that is not for pods.
fn node_with_storage() -> Node {
    let node = Node::with_pods();
    node.plug("ens6", 34);
    node.metadata.set_vnics(vec![vnic("primary", 10), vnic("pods", 33), vnic("storage", 34)]);
    // As a node without pods boots; a fresh namespace inherits this machine's.
    node.inside(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "0").unwrap());
    node
}

/// Our table for IPv4 and IPv6 with the kernel's handles, which show whether it was made again.
pub(crate) fn nft_table() -> Option<String> {
    let output = Command::new("nft").args(["-ast", "list", "table", "inet", vcn::NFT_TABLE]).output().unwrap();
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}

/// Nothing of what the host does for pods; what it does for itself is there.
fn left_alone(node: &Node) {
    for family in nft::TableFamily::ALL {
        let table = || nft::NftSocket::open().unwrap().comments(family, vcn::NFT_TABLE).unwrap();
        assert_eq!(node.inside(table), None, "{family:?}");
    }
    assert!(!node.rules(Family::Ipv4).iter().any(|rule| rule.starts_with("1000 ")), "{:?}", node.rules(Family::Ipv4));
    assert_eq!(node.sysctl("net/ipv4/ip_forward"), "0");
    assert_eq!(node.routes(Family::Ipv4, 1001).len(), 2);
}

fn configurations(node: &Node) -> Vec<String> {
    let entries = fs::read_dir(node.path("net.d")).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Whether it is reported that our configuration is left on a foreign node.
fn is_left(node: &Node) -> bool {
    node.conditions().contains(&"RuntimeConfigurationLeft".to_owned())
}

#[test]
fn configuration_is_written_only_when_an_address_is_usable() {
    let node = Node::with_pods();
    node.publish("BACKOFF", &[]);
    let agent = node.agent(&[]);
    let reason = "NativePodNetwork is BACKOFF: FailedToCreatePrivateIP";
    wait_for("pools with a reason", || node.pools()["reason"] == reason, || agent.log());
    node.wait_conditions(&agent, &["NativePodNetworkPending"]);
    wait_for("the binary", || node.path("bin/vcn-native").exists(), || agent.log());
    assert!(!node.path("net.d").join(CONFLIST_FILE).exists());
    node.publish("SUCCESS", &[("pods", 33)]);
    node.wait_ready(&agent);
    assert!(node.path("net.d").join(CONFLIST_FILE).exists());
    assert!(node.pools()["reason"].is_null());
}

#[test]
fn foreign_pod_network_gets_other_vnics_and_no_cni_file() {
    for (options, decided_by, configurations) in [
        (["--pod-network", "none"], "setting", 0),
        // Flannel's.
        (["--signal-node-label", "false"], "node-label", 1),
    ] {
        let node = node_with_storage();
        if configurations == 1 {
            fs::remove_file(node.npn()).unwrap();
            fs::write(node.path("net.d/10-flannel.conflist"), FLANNEL).unwrap();
        }
        let agent = node.ready_agent(&options);
        left_alone(&node);
        assert!(node.pools().is_null());
        let count = |directory: &str| fs::read_dir(node.path(directory)).unwrap().count();
        assert_eq!((count("bin"), count("net.d")), (0, configurations));
        assert_eq!(agent.events("pod_network.decided").last().unwrap()["decided_by"], decided_by);
    }
}

#[test]
fn pod_network_handed_over_keeps_the_network_of_running_pods() {
    let node = node_with_storage();
    let agent = node.ready_agent(&[]);
    agent.stop();
    let (rules, pools) = (node.rules(Family::Ipv4), node.pools());
    let table = node.inside(nft_table);
    assert!(rules.len() == 7 && table.is_some());
    std::fs::write(node.path("net.d/10-oci.conflist"), OKE).unwrap();
    let agent = node.ready_agent(&[]);
    node.wait_timer_passes(&agent, 3);
    assert_eq!(node.rules(Family::Ipv4), rules);
    assert_eq!(node.routes(Family::Ipv4, 1000).len(), 2);
    assert_eq!(node.inside(nft_table), table);
    assert_eq!(node.pools(), pools);
    assert!(!is_left(&node), "{:?}", node.conditions());
    assert_eq!(configurations(&node), ["10-oci.conflist"], "no pod uses our network");
}

#[test]
fn own_conflist_is_removed_with_last_pod_on_foreign_network() {
    let (node, agent) = Node::with_pods().with_agent(&[]);
    let pod = Pod::add(&node, "a");
    fs::write(node.path("net.d/10-oci.conflist"), OKE).unwrap();
    wait_for("its condition", || is_left(&node), || format!("{:?}\n{}", node.conditions(), agent.log()));
    assert_eq!(configurations(&node), [CONFLIST_FILE, "10-oci.conflist"]);
    let (code, said) = node.get("/readyz");
    assert!(
        code == 200 && said.contains("1 attachment(s) of this boot hold addresses"),
        "pods start by it still: {said}"
    );
    pod.del(&node);
    wait_for("its end", || !is_left(&node), || agent.log());
    assert_eq!(configurations(&node), ["10-oci.conflist"]);
}

/// A mistyped label takes no node down.
#[test]
fn our_pod_network_is_maintained_in_doubt() {
    let (node, agent) = Node::with_pods().with_agent(&[]);
    agent.stop();
    let rules = node.rules(Family::Ipv4);
    let agent = node.ready_agent(&["--signal-node-label", "yes"]);
    node.delete_rule(Family::Ipv4, 1537);
    wait_for("the rule", || node.rules(Family::Ipv4) == rules, || agent.log());
    fs::remove_file(node.path("net.d").join(CONFLIST_FILE)).unwrap();
    wait_for("the configuration", || configurations(&node) == [CONFLIST_FILE], || agent.log());
    fs::remove_file(node.path("run/pools.json")).unwrap();
    wait_for("the pools", || !node.pools().is_null(), || agent.log());
    let said = agent.events("pod_network.decided").pop().unwrap();
    let text = said["message"].as_str().unwrap();
    assert!(
        text.ends_with(
            "is neither true nor false, but our pod network is installed on this node: in doubt it is maintained"
        ),
        "{text}"
    );
}

/// Without a record nothing is changed, and no operator is advised to drain a working node. This holds after a mistyped label
/// and while the owner of the node is not known.
#[test]
fn doubt_is_not_reported_as_handover() {
    let mistyped: &[&str] = &["--signal-node-label", "yes"];
    let cases = [("lib/installer.json", mistyped, None), (LAST_ANSWERS, &[], Some("MetadataUnavailable"))];
    at_once(cases, |(lost, options, outage)| {
        let (node, agent) = Node::with_pods().with_agent(&[]);
        let rules = node.rules(Family::Ipv4);
        agent.stop();
        fs::remove_file(node.path(lost)).unwrap();
        node.metadata.fail_instance(outage.is_some());
        let agent = node.agent(options);
        node.wait_conditions(&agent, &[outage.as_slice(), &["LeftInPlace"]].concat());
        let said = node.get("/readyz").1;
        assert!(said.contains("nothing has been handed over") && !said.contains("another pod network owns"), "{said}");
        assert_eq!(node.rules(Family::Ipv4), rules);
        if outage.is_some() {
            node.metadata.fail_instance(false);
            node.wait_conditions(&agent, &[]);
        }
    });
}

/// After a boot, or in an image of a node: the runtime uses it, and no agent offers addresses.
#[test]
fn our_configuration_on_a_foreign_node_is_reported_until_removed() {
    let (node, agent) = Node::with_pods().with_agent(&[]);
    agent.stop();
    for file in fs::read_dir(node.path("run")).unwrap().map(|entry| entry.unwrap().path()) {
        if file.is_dir() { fs::remove_dir_all(file).unwrap() } else { fs::remove_file(file).unwrap() }
    }
    let agent = node.agent(&["--signal-node-label", "false"]);
    wait_for("its condition", || is_left(&node), || format!("{:?}\n{}", node.conditions(), agent.log()));
    let (code, said) = node.get("/readyz");
    assert!(code == 503 && said.contains("there is no configuration of another pod network"), "{said}");
    assert_eq!(configurations(&node), [CONFLIST_FILE]);
    fs::write(node.path("net.d/10-flannel.conflist"), FLANNEL).unwrap();
    node.wait_ready(&agent);
    assert_eq!(configurations(&node), ["10-flannel.conflist"]);
    // The runtime would use a file whose plugins make no interface.
    let istio = write_istio(&node);
    node.wait_conditions(&agent, &["RuntimeConfigurationMissing"]);
    let (code, said) = node.get("/readyz");
    assert!(code == 503 && said.contains("the runtime uses 01-istio.conflist") && said.contains("istio-cni"), "{said}");
    fs::remove_file(istio).unwrap();
    node.wait_ready(&agent);
}

/// A configuration of istio-cni alone, which sorts first.
fn write_istio(node: &Node) -> std::path::PathBuf {
    let path = node.path("net.d/01-istio.conflist");
    fs::write(node.path("bin/istio-cni"), "").unwrap();
    fs::write(&path, r#"{"name":"x","cniVersion":"0.3.1","plugins":[{"type":"istio-cni"}]}"#).unwrap();
    path
}

#[test]
fn configuration_without_an_interface_before_own_blocks() {
    let (node, agent) = Node::with_pods().with_agent(&[]);
    let istio = write_istio(&node);
    node.wait_conditions(&agent, &["RuntimeConfigurationPreceded"]);
    let (code, said) = node.get("/readyz");
    assert!(code == 503 && said.contains("its plugins make no interface: pods get no network"), "{said}");
    fs::remove_file(istio).unwrap();
    node.wait_ready(&agent);
    assert_eq!(node.conditions(), Vec::<String>::new());
}

#[test]
fn invalid_file_in_the_folder_of_our_network_blocks_until_corrected() {
    let node = Node::with_pods();
    let agent = node.ready_agent(&SLOW_RESYNC);
    let (folder, plugin) = (node.path("net.d/vcn-native"), fs::read(node.path("source/vcn-native")).unwrap());
    sandbox::write_program(&node.path("bin/istio-cni"), &plugin).unwrap();
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("10-a.conf"), r#"{"type":"istio-cni","capabilities":["mac"]}"#).unwrap();
    node.wait_conditions(&agent, &["RuntimeConfigurationBlocked"]);
    let (code, said) = node.get("/readyz");
    assert!(code == 503 && said.contains("vcn-native/10-a.conf: capabilities is"), "{said}");
    fs::write(folder.join("10-a.conf"), r#"{"type":"istio-cni"}"#).unwrap();
    node.wait_ready(&agent);
    assert_eq!(node.conditions(), Vec::<String>::new());
}

#[test]
fn foreign_configuration_before_own_blocks_when_binary_is_missing() {
    let (node, agent) = Node::with_pods().with_agent(&[]);
    let list = |kind: &str| format!(r#"{{"name":"x","cniVersion":"0.3.1","plugins":[{{"type":"{kind}"}}]}}"#);
    let (cilium, multus) = (node.path("net.d/05-cilium.conflist"), node.path("net.d/00-multus.conflist"));
    fs::write(&cilium, list("cilium-cni")).unwrap();
    node.wait_conditions(&agent, &["RuntimeConfigurationPreceded"]);
    let (code, said) = node.get("/readyz");
    assert!(code == 503 && said.contains("plugins without a binary: cilium-cni"), "{said}");
    fs::write(node.path("bin/cilium-cni"), "").unwrap();
    wait_for("pods to start by it", || node.get("/readyz").0 == 200, || agent.log());
    assert_eq!(node.conditions(), ["RuntimeConfigurationPreceded"]);
    // A plugin that calls other networks may call our network.
    fs::write(node.path("bin/multus"), "").unwrap();
    fs::write(&multus, list("multus")).unwrap();
    fs::remove_file(&cilium).unwrap();
    wait_for("its end", || node.conditions().is_empty() && node.get("/readyz").0 == 200, || agent.log());
    fs::remove_file(node.path("bin/multus")).unwrap();
    node.wait_conditions(&agent, &["RuntimeConfigurationPreceded"]);
    assert_eq!(node.get("/readyz").0, 503);
}

#[test]
fn foreign_plugin_without_binary_in_our_chain_blocks() {
    let (node, agent) = Node::with_pods().with_agent(&[]);
    let istio = node.path("bin/istio-cni");
    // What it leads to is not in the agent's container.
    std::os::unix::fs::symlink("/opt/istio/bin/istio-cni", &istio).unwrap();
    let path = node.path("net.d").join(CONFLIST_FILE);
    let mut list: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    list["plugins"].as_array_mut().unwrap().push(serde_json::json!({"type": "istio-cni"}));
    fs::write(&path, list.to_string()).unwrap();
    let noted = || node.run(&["status"]).1.contains("istio-cni, which another program added to our chain, may fail");
    wait_for("the note", noted, || agent.log());
    assert_eq!((node.conditions(), node.get("/readyz").0), (vec![], 200));
    fs::remove_file(&istio).unwrap();
    node.wait_conditions(&agent, &["PluginMissing"]);
    assert_eq!(node.get("/readyz").0, 503);
    let (_, why) = node.run(&["why-not-ready"]);
    assert!(why.contains("1. PluginMissing (istio-cni)"), "{why}");
    let plugin = fs::read(node.path("source/vcn-native")).unwrap();
    sandbox::write_program(&istio, &plugin).unwrap();
    wait_for("its end", || node.conditions().is_empty() && node.get("/readyz").0 == 200, || agent.log());
}

#[test]
fn slow_plugin_is_reported_and_chained_when_it_answers() {
    let node = Node::with_pods();
    // On a node that boots it is slow; what it answers then is as good as nothing.
    let answer = r#"{"cniVersion":"1.1.0","supportedVersions":["0.4.0","1.0.0"]}"#;
    let busy = "[ -e /run/vcn-native/busy ] && exit 1";
    let portmap = format!("#!/bin/sh\n{busy}\necho '{answer}'\n");
    sandbox::write_program(&node.path("bin/portmap"), portmap.as_bytes()).unwrap();
    fs::create_dir_all(node.path("run")).unwrap();
    fs::write(node.path("run/busy"), "").unwrap();
    let agent = node.ready_agent(&SLOW_RESYNC);
    assert_eq!(node.conditions(), ["PluginUnanswered"]);
    let chained = || fs::read_to_string(node.path("net.d").join(CONFLIST_FILE)).unwrap().contains("portmap");
    assert!(!chained());
    let (_, said) = node.run(&["status"]);
    assert!(said.contains("portmap is left out of the chain until it answers: it ended with exit status: 1"), "{said}");
    fs::remove_file(node.path("run/busy")).unwrap();
    wait_for("portmap in the chain", chained, || agent.log());
    node.wait_conditions(&agent, &[]);
}
