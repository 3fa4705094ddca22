//! The main job on the emulated VCN: the real installer, agent and plugin, judged by packets.

mod extra_interfaces;
mod handed_over;
mod unlisted;
mod vlan_links;

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use sandbox::{Agent, Attachment, Container, Node, NodeSpec, NpnShape, Pod, Runtime, SubnetSpec, Vcn, VnicSpec};
use tests::built::bin_dir;
use vcn::{Family, MachineKind};

use crate::wait_for;

struct Cluster {
    vcn: Vcn,
    nodes: Vec<Arc<Node>>,
    agents: Vec<Agent>,
}

impl Cluster {
    /// Two nodes with one VNIC for pods each, set up by the agent.
    fn start(kind: MachineKind) -> Self {
        Self::start_as(kind, "")
    }

    /// The same with agents that have this in their ConfigMap.
    fn start_as(kind: MachineKind, configuration: &str) -> Self {
        Self::start_by(kind, configuration, true)
    }

    /// Whose nodes have NativePodNetworks, and are ready for pods, or neither.
    fn start_by(kind: MachineKind, configuration: &str, published: bool) -> Self {
        let node = |name| {
            let spec = NodeSpec::of(kind, name, "nodes").metadata("oke-native-pod-networking", "true");
            spec.vnic(VnicSpec::for_pods("pods", 4))
        };
        let vcn = Vcn::builder()
            .subnet(SubnetSpec::new("nodes", &["10.0.0.0/24", "2603:c020:0:1::/64"]))
            .subnet(SubnetSpec::new("pods", &["10.0.32.0/22", "2603:c020:0:2::/64"]))
            .node(node("node-a"))
            .node(node("node-b"))
            .start()
            .unwrap();
        let nodes: Vec<_> = vcn.nodes().cloned().collect();
        let mut cluster = Self { vcn, nodes, agents: Vec::new() };
        for node in &cluster.nodes {
            if published {
                sandbox::publish_native_pod_network(&cluster.vcn, node, NpnShape::PerFamily).unwrap();
            }
            let directory = Path::new("/etc/oke-node-agent-map");
            let configure =
                || fs::create_dir(directory).and_then(|()| fs::write(directory.join("agent.conf"), configuration));
            node.run(configure).unwrap().unwrap();
            let container = Container::node_agent().unwrap().with_config_map("oke-node-agent", directory);
            let mut agent = Agent::start_in(&container, node, &bin_dir()).unwrap();
            if published {
                agent.wait_ready(node).unwrap();
            }
            cluster.agents.push(agent);
        }
        cluster
    }

    fn node(&self, name: &str) -> &Node {
        self.nodes.iter().find(|node| node.name() == name).unwrap()
    }

    fn add(&self, node: &str, pod: &str) -> (Pod, Attachment) {
        let node = self.node(node);
        let pod = node.add_pod(pod).unwrap();
        let attachment = Runtime::of(node).unwrap().add(&pod).unwrap();
        (pod, attachment)
    }
}

fn reaches_both_families(from: &Pod, to: &Attachment) {
    let addresses: Vec<IpAddr> = to.addresses().collect();
    assert_eq!(addresses.iter().map(|a| Family::of(*a)).collect::<Vec<_>>(), Family::ALL);
    for address in addresses {
        from.ping(address).unwrap();
    }
}

fn timer_passes(node: &Node) -> f64 {
    let metrics = Agent::metrics(node).unwrap();
    let passes = metrics.lines().filter(|line| line.contains("reconciles_total{cause=\"timer\""));
    passes.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

fn on_node(node: &Node, file: &str) -> String {
    node.run(|| fs::read_to_string(Path::new(file)).unwrap_or_default()).unwrap()
}

#[test]
fn pods_start_and_stop_without_agent_and_metadata_service() {
    let mut cluster = Cluster::start(MachineKind::Virtual);
    for agent in std::mem::take(&mut cluster.agents) {
        agent.stop().unwrap();
    }
    let fault = sandbox::MetadataFault::Status(503);
    cluster.nodes.iter().for_each(|node| node.set_metadata_fault(Some(fault.clone())));
    let (a, on_a) = cluster.add("node-a", "a");
    let (b, on_b) = cluster.add("node-b", "b");
    reaches_both_families(&a, &on_b);
    reaches_both_families(&b, &on_a);
    Runtime::of(cluster.node("node-a")).unwrap().del(&a, &on_a).unwrap();
    assert!(!b.pings(None, on_a.addresses().next().unwrap()).unwrap(), "a is gone");
}

#[test]
fn an_agent_that_restarts_disturbs_no_pod() {
    let mut cluster = Cluster::start(MachineKind::Virtual);
    let (a, _) = cluster.add("node-a", "a");
    let (_b, on_b) = cluster.add("node-b", "b");
    reaches_both_families(&a, &on_b);
    let before = on_node(cluster.node("node-a"), "/run/vcn-native/pools.json");
    cluster.agents.remove(0).stop().unwrap();
    reaches_both_families(&a, &on_b);
    let node = Arc::clone(&cluster.nodes[0]);
    let mut again = Agent::start(&node, &bin_dir()).unwrap();
    again.wait_ready(&node).unwrap();
    cluster.agents.push(again);
    reaches_both_families(&a, &on_b);
    assert_eq!(on_node(&node, "/run/vcn-native/pools.json"), before);
}

#[test]
fn hot_plugged_vnic_is_configured_and_its_addresses_serve_pods() {
    let cluster = Cluster::start(MachineKind::Virtual);
    let vnic = cluster.vcn.attach_vnic("node-a", &VnicSpec::for_pods("pods", 4)).unwrap();
    let node = cluster.node("node-a");
    sandbox::publish_native_pod_network(&cluster.vcn, node, NpnShape::PerFamily).unwrap();
    wait_for("the new VNIC is in the pools", || // Not the reason, which names it too while it is not there.
        on_node(node, "/run/vcn-native/pools.json").contains(&format!("\"vnicId\": \"{}\"", vnic.id)));
    // Five pods do not fit into the four addresses of the first VNIC.
    let pods: Vec<_> = (0..5).map(|n| cluster.add("node-a", &format!("p{n}"))).collect();
    let (b, _) = cluster.add("node-b", "b");
    pods.iter().for_each(|(_, attachment)| reaches_both_families(&b, attachment));
}

#[test]
fn a_flannel_cluster_keeps_its_pod_network() {
    let vcn = Vcn::builder()
        .subnet(SubnetSpec::new("nodes", &["10.0.0.0/24"]))
        .node(NodeSpec::virtual_machine("node-a", "nodes").vnic(VnicSpec::for_pods("nodes", 4)))
        .start()
        .unwrap();
    let node = vcn.node("node-a").unwrap();
    let flannel = r#"{"name":"cbr0","cniVersion":"0.3.1","plugins":[{"type":"flannel"}]}"#;
    node.run(|| {
        fs::create_dir_all("/etc/cni/net.d").and_then(|()| fs::write("/etc/cni/net.d/10-flannel.conflist", flannel))
    })
    .unwrap()
    .unwrap();
    let agent = Agent::start(&node, &bin_dir()).unwrap();
    wait_for("the host's own VNIC is configured", || {
        let routes = node.command("ip").args(["route", "show", "table", "all"]).output().unwrap();
        String::from_utf8_lossy(&routes.stdout).contains("table 1000")
            || String::from_utf8_lossy(&routes.stdout).contains("table 1001")
    });
    wait_for("the decision is logged", || Agent::log(&node).unwrap().contains("lannel"));
    assert!(!node.run(|| Path::new("/etc/cni/net.d").join(vcn::CONFLIST_FILE).exists()).unwrap());
    assert!(!node.run(|| Path::new("/opt/cni/bin/vcn-native").exists()).unwrap());
    agent.stop().unwrap();
}

/// On both kinds of machines; CHECK also queries the kernel where packets go, next to what the agent creates (rules, marks, the nft
/// table, link-local routers).
fn pods_on_two_nodes_reach_each_other(kind: MachineKind) {
    let cluster = Cluster::start(kind);
    let (a, on_a) = cluster.add("node-a", "a");
    let (b, on_b) = cluster.add("node-b", "b");
    reaches_both_families(&a, &on_b);
    reaches_both_families(&b, &on_a);
    for (node, pod, attachment) in [("node-a", &a, &on_a), ("node-b", &b, &on_b)] {
        let node = cluster.node(node);
        Runtime::of(node).unwrap().check(pod, attachment).unwrap();
        let pools = on_node(node, "/run/vcn-native/pools.json");
        assert!(pools.contains("\"linkHasMac\": true"), "CHECK uses it: {pools}");
        let log = on_node(node, "/run/oke-node-agent.log");
        assert!(!log.contains("host.repaired"), "an agent need not repair what it made: {log}");
        let links = rules_and_links(node);
        assert_eq!(links.contains("802.1Q"), kind == MachineKind::BareMetal, "{links}");
    }
    Runtime::of(cluster.node("node-a")).unwrap().del(&a, &on_a).unwrap();
    assert!(!b.pings(None, on_a.addresses().next().unwrap()).unwrap(), "a is gone");
}

#[test]
fn pods_on_virtual_machines_reach_each_other() {
    pods_on_two_nodes_reach_each_other(MachineKind::Virtual);
}

#[test]
#[ignore = "needs 802.1Q: run by tests/uml/run"]
fn pods_on_bare_metal_reach_each_other_over_vlans() {
    pods_on_two_nodes_reach_each_other(MachineKind::BareMetal);
}

/// What `node` has of policy rules and links, as text.
fn rules_and_links(node: &Node) -> String {
    let list = |words: &[&str]| String::from_utf8(node.command("ip").args(words).output().unwrap().stdout).unwrap();
    list(&["rule"]) + &list(&["-6", "rule"]) + &list(&["-d", "link"])
}

#[test]
#[ignore = "needs 802.1Q: run by tests/uml/run"]
fn bare_metal_vnic_is_hot_plugged_and_unplugged_without_outage() {
    let cluster = Cluster::start_as(MachineKind::BareMetal, "DETACH_GRACE_SECONDS=1\nRESYNC_SECONDS=2\n");
    let node = cluster.node("node-a");
    let publish = || sandbox::publish_native_pod_network(&cluster.vcn, node, NpnShape::PerFamily).unwrap();
    let (stays, on_stays) = cluster.add("node-a", "stays");
    let (b, on_b) = cluster.add("node-b", "b");
    let before = rules_and_links(node);
    // Twice: the second gets the number of the table that the first gave back.
    for round in ["first", "second"] {
        let vnic = cluster.vcn.attach_vnic("node-a", &VnicSpec::for_pods("pods", 4)).unwrap();
        publish();
        let in_pools = || {
            let id = format!("\"vnicId\": \"{}\"", vnic.id);
            on_node(node, "/run/vcn-native/pools.json").contains(&id)
        };
        wait_for("the new VNIC is in the pools", in_pools);
        let link = format!("vlan protocol 802.1Q id {} ", vnic.vlan_tag);
        assert!(rules_and_links(node).contains(&link), "{}", rules_and_links(node));
        // Four pods do not fit into what the first VNIC has left.
        let pods: Vec<_> = (0..4).map(|n| cluster.add("node-a", &format!("{round}-{n}"))).collect();
        let of_new = |attachment: &Attachment| {
            let given = vnic.secondary.ipv4.iter().flatten().copied().collect::<Vec<_>>();
            attachment.addresses().any(|address| given.contains(&address))
        };
        assert!(pods.iter().any(|(_, attachment)| of_new(attachment)));
        pods.iter().for_each(|(_, attachment)| reaches_both_families(&b, attachment));

        // Out of band, while pods have its addresses.
        cluster.vcn.detach_vnic("node-a", &vnic.id).unwrap();
        publish();
        wait_for("the pools forget it", || !in_pools());
        reaches_both_families(&stays, &on_b);
        reaches_both_families(&b, &on_stays);
        for (pod, attachment) in &pods {
            Runtime::of(node).unwrap().del(pod, attachment).unwrap();
        }
        let tidy = |text: &str| text.lines().filter(|line| !line.contains("qdisc")).collect::<Vec<_>>().join("\n");
        wait_for("nothing of it is left", || {
            let now = rules_and_links(node);
            !now.contains(&link) && tidy(&now) == tidy(&before)
        });
    }
    reaches_both_families(&stays, &on_b);
}
