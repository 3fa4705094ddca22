//! The main job on the emulated VCN: the real installer, agent and plugin, judged by packets.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, its helper functions too")]

mod checked;
mod handed_over;
mod unlisted;
mod vlan_links;

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sandbox::{Agent, Attachment, Container, Node, NodeSpec, NpnShape, Pod, Runtime, SubnetSpec, Vcn, VnicSpec};
use vcn::{Family, MachineKind};

/// Far beyond what anything here takes.
const PATIENCE: Duration = Duration::from_secs(90);

/// Where cargo puts the programs: two folders above this test.
fn bin_dir() -> PathBuf {
    let directory = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().to_owned();
    for program in ["oke-node-agent", "vcn-native", "oke-node-controller", "oke-sandbox"] {
        assert!(directory.join(program).is_file(), "{program} is not built: cargo build --workspace --bins");
    }
    directory
}

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
            let spec = match kind {
                MachineKind::Virtual => NodeSpec::virtual_machine(name, "nodes"),
                MachineKind::BareMetal => NodeSpec::bare_metal(name, "nodes"),
            };
            spec.metadata("oke-native-pod-networking", "true").vnic(VnicSpec::for_pods("pods", 4))
        };
        let vcn = Vcn::builder()
            .subnet(
                SubnetSpec::new("nodes", "10.0.0.0/24".parse().unwrap()).with("2603:c020:0:1::/64".parse().unwrap()),
            )
            .subnet(
                SubnetSpec::new("pods", "10.0.32.0/22".parse().unwrap()).with("2603:c020:0:2::/64".parse().unwrap()),
            )
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

fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn timer_passes(node: &Node) -> f64 {
    let metrics = Agent::metrics(node).unwrap();
    let passes = metrics.lines().filter(|line| line.contains("passes_total{cause=\"timer\""));
    passes.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

fn on_node(node: &Node, file: &str) -> String {
    node.run(|| fs::read_to_string(Path::new(file)).unwrap_or_default()).unwrap()
}

fn demo(options: &[&str]) -> String {
    demo_with(&[], options)
}

fn demo_with(environment: &[(&str, &str)], options: &[&str]) -> String {
    let mut command = Command::new(bin_dir().join("oke-sandbox"));
    command.envs(environment.iter().copied()).arg("demo").arg("--bin-dir").arg(bin_dir());
    let output = command.args(options).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("Everything works, and nothing is left behind."), "{text}");
    text
}

#[test]
fn the_demo_proves_everything_and_says_so() {
    let text = demo(&[]);
    for proof in ["IPv6: every pod of the other node", "port 53: a name", "port 123: the time"] {
        assert!(text.lines().any(|line| line.contains(proof) && line.contains("answered")), "{proof}: {text}");
    }
    assert!(!text.contains("left out"), "{text}");
    let ready = text.lines().filter(|line| line.contains("vnicattachment") && line.contains("True    Ready"));
    assert_eq!(ready.count(), 2, "{text}");
}

#[test]
fn the_demo_goes_on_where_no_api_server_can_be_had_and_says_why() {
    let text = demo_with(&[("KUBEBUILDER_ASSETS", "/nowhere")], &[]);
    let told = text.lines().any(|line| line.contains("left out: ") && line.contains("KUBEBUILDER_ASSETS is /nowhere"));
    assert!(told, "{text}");
}

#[test]
#[ignore = "needs 802.1Q: run by tests/uml/run"]
fn the_demo_has_a_bare_metal_node_where_the_kernel_can() {
    // The guest has one processor, and an API server wants more than that.
    assert!(demo(&["--without-kubernetes"]).contains("node-b: bare metal, 3 VNICs"));
}

#[test]
fn pods_come_and_go_while_the_agent_and_the_metadata_service_are_dead() {
    let mut cluster = Cluster::start(MachineKind::Virtual);
    for agent in std::mem::take(&mut cluster.agents) {
        agent.stop().unwrap();
    }
    let fault = sandbox::Fault::lasting(sandbox::FaultKind::Status(503));
    cluster.nodes.iter().for_each(|node| node.set_metadata_fault(Some(fault.clone())));
    let (a, on_a) = cluster.add("node-a", "a");
    let (b, on_b) = cluster.add("node-b", "b");
    reaches_both_families(&a, &on_b);
    reaches_both_families(&b, &on_a);
    Runtime::of(cluster.node("node-a")).unwrap().del(&a, &on_a).unwrap();
    assert!(b.ping(on_a.addresses().next().unwrap()).is_err(), "it is gone");
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
fn a_hot_plugged_vnic_is_configured_and_its_addresses_serve_pods() {
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
        .subnet(SubnetSpec::new("nodes", "10.0.0.0/24".parse().unwrap()))
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

#[test]
#[ignore = "needs 802.1Q: run by tests/uml/run"]
fn bare_metal_nodes_carry_pods_over_vlans() {
    let cluster = Cluster::start(MachineKind::BareMetal);
    let (a, on_a) = cluster.add("node-a", "a");
    let (b, on_b) = cluster.add("node-b", "b");
    reaches_both_families(&a, &on_b);
    reaches_both_families(&b, &on_a);
    let links = cluster.node("node-a").command("ip").args(["-d", "link"]).output().unwrap();
    assert!(String::from_utf8_lossy(&links.stdout).contains("802.1Q"), "by a VLAN link");
    for node in &cluster.nodes {
        let log = on_node(node, "/run/oke-node-agent.log");
        assert!(!log.contains("host.repaired"), "what an agent makes it need not repair: {log}");
    }
    Runtime::of(cluster.node("node-a")).unwrap().del(&a, &on_a).unwrap();
    assert!(b.ping(on_a.addresses().next().unwrap()).is_err());
}

/// What `node` has of policy rules and links, as text.
fn rules_and_links(node: &Node) -> String {
    let list = |words: &[&str]| String::from_utf8(node.command("ip").args(words).output().unwrap().stdout).unwrap();
    list(&["rule"]) + &list(&["-6", "rule"]) + &list(&["-d", "link"])
}

#[test]
#[ignore = "needs 802.1Q: run by tests/uml/run"]
fn a_vnic_of_bare_metal_is_hot_plugged_and_unplugged_while_pods_of_others_go_on() {
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
