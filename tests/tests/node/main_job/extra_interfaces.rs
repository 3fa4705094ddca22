//! Pods with extra interfaces, in each family: their packets, while the agent restarts, after a reboot of the node, and when the
//! cloud detaches their VNICs.

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ipam::{BootId, Store};
use netlink::{LinkChange, Socket};
use sandbox::{Agent, Attachment, Node, NodeSpec, NpnShape, Pod, Runtime, SubnetSpec, Vcn, Vnic, VnicSpec};
use serde_json::{Value, json};
use tests::built::bin_dir;
use vcn::{Family, IfName, MachineKind};

use super::on_node;
use crate::wait_for;

const STATE: &str = "/run/vcn-native";

/// A node with a VNIC for pods, and two that pods request by name.
struct Scene {
    node: Arc<Node>,
    peer: Arc<Node>,
    shared: Vnic,
    exclusive: Vnic,
    agent: Option<Agent>,
    vcn: Vcn,
}

impl Scene {
    fn start(kind: MachineKind) -> Self {
        Self::start_with(kind, &Family::ALL)
    }

    /// The VNICs that pods request have addresses of these families.
    fn start_with(kind: MachineKind, families: &[Family]) -> Self {
        let spec = NodeSpec::of(kind, "node-a", "nodes");
        let blocks = families.iter().map(|family| match family {
            Family::Ipv4 => "10.0.64.0/24",
            Family::Ipv6 => "2603:c020:0:3::/64",
        });
        let vcn = Vcn::builder()
            .subnet(SubnetSpec::new("nodes", &["10.0.0.0/24", "2603:c020:0:1::/64"]))
            .subnet(SubnetSpec::new("pods", &["10.0.32.0/22", "2603:c020:0:2::/64"]))
            .subnet(SubnetSpec::new("storage", &blocks.collect::<Vec<_>>()))
            .node(spec.metadata("oke-native-pod-networking", "true").vnic(VnicSpec::for_pods("pods", 4)))
            .node(NodeSpec::virtual_machine("node-b", "nodes"))
            .start()
            .unwrap();
        let (node, peer) = (vcn.node("node-a").unwrap(), vcn.node("node-b").unwrap());
        // It names the VNICs that are there: the one for pods.
        sandbox::publish_native_pod_network(&vcn, &node, NpnShape::PerFamily).unwrap();
        let (shared, exclusive) = attach(&vcn);
        let mut scene = Self { node, peer, shared, exclusive, agent: None, vcn };
        scene.remember();
        scene.start_agent();
        scene
    }

    /// What an agent of a cluster has on disk of its VnicAttachments.
    fn remember(&self) {
        let object = |name: &str, mode: &str, vnic: &Vnic| {
            let count = |addresses: Option<&Vec<_>>| addresses.map_or(0, Vec::len);
            let counts = [&vnic.secondary.ipv4, &vnic.secondary.ipv6].map(|of| count(of.as_ref()));
            json!({
                "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "VnicAttachment",
                "metadata": { "name": name, "uid": name, "generation": 1 },
                "spec": { "instanceId": self.node.id(), "subnetId": vnic.subnet.id, "name": name, "purpose": "Attach",
                    "mode": mode, "allowedNamespaces": ["default"], "ipv4Count": counts[0], "ipv6Count": counts[1] },
                "status": { "vnicId": vnic.id, "nodeName": "node-a", "podAddresses": vnic.secondary.ipv4.as_deref().unwrap_or_default() },
            })
        };
        let value = [object("shared", "Shared", &self.shared), object("exclusive", "Exclusive", &self.exclusive)];
        let copy = json!({ "version": 1, "asOfUnixMillis": 0, "bootId": null, "value": value }).to_string();
        let path = Path::new("/var/lib/vcn-native").join(vcn::ATTACHMENTS_COPY_FILE);
        self.node.run(|| fs::write(path, copy)).unwrap().unwrap();
    }

    fn start_agent(&mut self) {
        let mut agent = Agent::start(&self.node, &bin_dir()).unwrap();
        agent.wait_ready(&self.node).unwrap();
        self.agent = Some(agent);
        wait_for("both VNICs are offered", || self.offers() == 2);
    }

    fn stop_agent(&mut self) {
        self.agent.take().unwrap().stop().unwrap();
    }

    fn pools(&self) -> String {
        on_node(&self.node, "/run/vcn-native/pools.json")
    }

    fn runtime(&self, wants: Value) -> Runtime<'_> {
        let annotations = json!({ "oke.oraclecloud.com/interfaces": wants.to_string() });
        Runtime::of(&self.node).unwrap().with_capability("io.kubernetes.cri.pod-annotations", annotations)
    }

    /// A pod with an interface on each.
    fn add(&self, name: &str, wants: Value) -> (Pod, Attachment) {
        let pod = self.node.add_pod(name).unwrap();
        let attachment = self.runtime(wants).add(&pod).unwrap();
        (pod, attachment)
    }

    fn del(&self, pod: &Pod, attachment: &Attachment) {
        self.runtime(both()).del(pod, attachment).unwrap();
    }

    /// All addresses of the pod answer the other node.
    fn answers(&self, attachment: &Attachment) {
        // Those of the pod network, of the Shared and of the Exclusive VNIC.
        let count = Family::ALL.len() + 2 * self.exclusive.addresses().count();
        assert_eq!(attachment.addresses().count(), count, "{}", attachment.result);
        for address in attachment.addresses() {
            wait_for(&format!("{address} answers"), || self.peer.pings(None, address).unwrap());
        }
    }

    /// Each address of an interface reaches the other node; the fabric admits only its own VNIC with it.
    fn reaches(&self, pod: &Pod, addresses: impl Iterator<Item = IpAddr>) {
        for source in addresses {
            let peer = self.peer.address(Family::of(source)).unwrap();
            wait_for(&format!("{source} reaches {peer}"), || pod.pings(Some(source), peer).unwrap());
        }
    }

    /// How many VNICs pods may request.
    fn offers(&self) -> usize {
        self.pools().matches("\"attach\": {").count()
    }

    /// How many interfaces are on record.
    fn recorded(&self) -> usize {
        let read = || Store::new(Path::new(STATE), BootId::current().unwrap()).read().unwrap();
        self.node.run(read).unwrap().allocations.len()
    }

    /// The machine goes off and on: links of VNICs are where the firmware shows them, /run is empty, and of the network there
    /// is what the image sets up.
    fn reboot(&mut self, pod: Pod) {
        self.stop_agent();
        if self.node.kind() == MachineKind::Virtual {
            // A real NIC comes back when its namespace ends; the sandbox's link would end with it.
            let link: IfName = "net2".parse().unwrap();
            let mut inside = Socket::open_in(pod.netns()).unwrap();
            let index = inside.index_of(&link).unwrap();
            inside.change_link(index, &[LinkChange::Down]).unwrap();
            let home = [LinkChange::Netns(self.node.netns()), LinkChange::Rename(self.exclusive.link.clone())];
            inside.change_link(index, &home).unwrap();
        }
        let links = [&self.shared, &self.exclusive].map(|vnic| vnic.link.to_string());
        pod.remove().unwrap();
        let script = format!(
            "for link in $(ip -o link show type vlan | sed -E 's/^[0-9]+: ([^@]+)@.*/\\1/'); do ip link del $link; done
             for link in {}; do ip link set $link down alias ''; ip addr flush dev $link; done
             for family in -4 -6; do
                 ip $family rule flush
                 ip $family rule add pref 32766 lookup main; ip $family rule add pref 32767 lookup default
                 for table in 998 999 1000 1001 1002; do ip $family route flush table $table; done
             done
             nft delete table inet vcn-native; nft delete table arp vcn-native
             rm -rf {STATE}; true",
            links.join(" ")
        );
        let done = self.node.command("sh").args(["-c", &script]).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        let gone = || {
            let links = self.node.command("ip").args(["-o", "link"]).output().unwrap().stdout;
            !String::from_utf8_lossy(&links).contains(": vcn")
        };
        wait_for("the pods' links are gone", gone);
    }
}

/// Attaches the two VNICs that pods request.
fn attach(vcn: &Vcn) -> (Vnic, Vnic) {
    let attach = |spec: VnicSpec| vcn.attach_vnic("node-a", &spec).unwrap();
    (attach(VnicSpec::new("storage").secondary(2)), attach(VnicSpec::new("storage")))
}

fn both() -> Value {
    json!([{ "vnic": "shared" }, { "vnic": "exclusive" }])
}

fn pods_keep_their_interfaces_while_the_agent_restarts(kind: MachineKind) {
    let mut scene = Scene::start(kind);
    let (pod, attachment) = scene.add("a", both());
    scene.answers(&attachment);
    let before = scene.pools();
    scene.stop_agent();
    scene.answers(&attachment);
    scene.start_agent();
    assert_eq!(scene.pools(), before);
    scene.answers(&attachment);
    scene.runtime(both()).check(&pod, &attachment).unwrap();
    // Without an agent as well.
    scene.stop_agent();
    scene.del(&pod, &attachment);
    assert_eq!(scene.recorded(), 0);
    let (next, of_next) = scene.add("b", both());
    scene.answers(&of_next);
    scene.start_agent();
    scene.answers(&of_next);
    scene.del(&next, &of_next);
}

fn packets_of_extra_interfaces_pass_the_fabric(kind: MachineKind) {
    for families in [&[Family::Ipv4][..], &[Family::Ipv6], &Family::ALL] {
        let scene = Scene::start_with(kind, families);
        let before = scene.vcn.drops();
        let (pod, attachment) = scene.add("a", both());
        for interface in ["net1", "net2"] {
            assert_eq!(attachment.addresses_of(interface).map(Family::of).collect::<Vec<_>>(), families);
        }
        scene.answers(&attachment);
        scene.reaches(&pod, attachment.addresses());
        assert_eq!(scene.vcn.drops(), before, "{families:?}");
        scene.del(&pod, &attachment);
        assert_eq!(scene.recorded(), 0);
    }
}

fn cloud_detaches_vnics_that_a_pod_holds(kind: MachineKind) {
    let mut scene = Scene::start(kind);
    let (pod, attachment) = scene.add("a", both());
    scene.answers(&attachment);
    for vnic in [&scene.shared, &scene.exclusive] {
        scene.vcn.detach_vnic("node-a", &vnic.id).unwrap();
    }
    wait_for("no VNIC is offered", || scene.offers() == 0);
    let refused = scene.runtime(both()).check(&pod, &attachment).unwrap_err().to_string();
    for vnic in [&scene.shared, &scene.exclusive] {
        let named = format!("is on VNIC {}, which is not among this node's any more", vnic.id);
        assert!(refused.contains(&named), "{refused}");
    }
    scene.del(&pod, &attachment);
    assert_eq!(scene.recorded(), 0);
    let left = scene.node.command("ip").args(["-o", "link"]).output().unwrap().stdout;
    assert!(!String::from_utf8_lossy(&left).contains(": vcn"), "{}", String::from_utf8_lossy(&left));
    // The next VNICs of these names.
    scene.stop_agent();
    (scene.shared, scene.exclusive) = attach(&scene.vcn);
    scene.remember();
    scene.start_agent();
    let (next, of_next) = scene.add("b", both());
    scene.answers(&of_next);
    scene.del(&next, &of_next);
}

fn pods_get_their_interfaces_again_after_a_reboot(kind: MachineKind) {
    let mut scene = Scene::start(kind);
    let (pod, attachment) = scene.add("a", both());
    scene.answers(&attachment);
    let address = attachment.addresses_of("net1").next().unwrap();
    scene.reboot(pod);
    scene.start_agent();
    // At once the same address: the cooldown ended with the boot, and nothing of the pod before holds it.
    let (pod, of_pod) = scene.add("b", json!([{ "vnic": "shared", "ips": [address] }, { "vnic": "exclusive" }]));
    assert_eq!(of_pod.addresses_of("net1").next(), Some(address));
    scene.answers(&of_pod);
    // A runtime ends the sandboxes of before when it has started.
    let before = scene.node.add_pod("a").unwrap();
    scene.del(&before, &attachment);
    scene.answers(&of_pod);
    scene.runtime(both()).check(&pod, &of_pod).unwrap();
    scene.del(&pod, &of_pod);
    let families = Family::ALL.len();
    let (_, of_next) = scene.add("c", both());
    assert_eq!(of_next.addresses().count(), 3 * families);
}

#[test]
fn extra_interfaces_outlast_an_agent_that_restarts() {
    pods_keep_their_interfaces_while_the_agent_restarts(MachineKind::Virtual);
}

#[test]
#[ignore = "needs 802.1Q: run by tests/uml/run"]
fn extra_interfaces_of_bare_metal_outlast_an_agent_that_restarts() {
    pods_keep_their_interfaces_while_the_agent_restarts(MachineKind::BareMetal);
}

#[test]
fn extra_interfaces_work_after_a_reboot() {
    pods_get_their_interfaces_again_after_a_reboot(MachineKind::Virtual);
}

#[test]
#[ignore = "needs 802.1Q: run by tests/uml/run"]
fn extra_interfaces_of_bare_metal_work_after_a_reboot() {
    pods_get_their_interfaces_again_after_a_reboot(MachineKind::BareMetal);
}

#[test]
fn extra_interfaces_send_and_receive_in_each_family() {
    packets_of_extra_interfaces_pass_the_fabric(MachineKind::Virtual);
}

#[test]
#[ignore = "needs 802.1Q: run by tests/uml/run"]
fn extra_interfaces_of_bare_metal_send_and_receive_in_each_family() {
    packets_of_extra_interfaces_pass_the_fabric(MachineKind::BareMetal);
}

#[test]
fn pod_ends_cleanly_after_the_cloud_detached_its_vnics() {
    cloud_detaches_vnics_that_a_pod_holds(MachineKind::Virtual);
}

#[test]
#[ignore = "needs 802.1Q: run by tests/uml/run"]
fn pod_of_bare_metal_ends_cleanly_after_its_vnics_were_detached() {
    cloud_detaches_vnics_that_a_pod_holds(MachineKind::BareMetal);
}

/// What the agent does while a pod is deleted.
#[derive(Clone, Copy, Debug)]
enum AgentState {
    Running,
    Stopped,
    Restarted,
}

impl Scene {
    /// Runs a script in a pod that may do what `NET_ADMIN` may, then deletes the pod.
    fn attack(&mut self, attack: &str, state: AgentState) {
        let (pod, attachment) = self.add("hostile", json!([{ "vnic": "exclusive" }]));
        self.answers_of(&attachment);
        let script = attack.replace("MAC", &self.exclusive.mac.to_string());
        host_harness::sh(pod.netns(), &script);
        match state {
            AgentState::Running => {}
            AgentState::Stopped => self.stop_agent(),
            AgentState::Restarted => {
                self.stop_agent();
                self.start_agent();
            }
        }
        self.del(&pod, &attachment);
        pod.remove().unwrap();
    }

    fn answers_of(&self, attachment: &Attachment) {
        for address in attachment.addresses() {
            wait_for(&format!("{address} answers"), || self.peer.pings(None, address).unwrap());
        }
    }

    /// Another pod gets the VNIC, and its packets pass.
    fn serves_next(&self) {
        let (pod, attachment) = self.add("next", json!([{ "vnic": "exclusive" }]));
        self.answers_of(&attachment);
        self.del(&pod, &attachment);
        pod.remove().unwrap();
        assert_eq!(self.recorded(), 0);
    }

    fn reports_missing_link(&self) -> bool {
        let is_raised = |line: &str| line.contains("reason=\"LinkNotReturned\"") && line.ends_with(" 1.0");
        // It serves them shortly after its start.
        wait_for("metrics", || Agent::metrics(&self.node).is_ok());
        Agent::metrics(&self.node).unwrap().lines().any(is_raised)
    }
}

#[test]
fn vnic_outlasts_a_pod_that_replaces_its_link() {
    let mut scene = Scene::start_with(MachineKind::Virtual, &[Family::Ipv4]);
    for state in [AgentState::Running, AgentState::Stopped, AgentState::Restarted] {
        for attack in [
            "ip link set net1 down; ip link set net1 name x address 02:00:00:00:00:66
             ip link add net1 address MAC type veth peer name tap",
            "ip link set net1 down; ip link set net1 name x; ip link add net1 address MAC type bridge",
            "ip link property add dev net1 altname ens3 altname ens5; ip link set net1 promisc on",
        ] {
            scene.attack(attack, state);
            assert_eq!(scene.recorded(), 0, "{state:?}: {attack}");
            if scene.agent.is_none() {
                scene.start_agent();
            }
            assert!(!scene.reports_missing_link(), "{state:?}: {attack}");
            scene.serves_next();
        }
    }
}

#[test]
fn vnic_stays_taken_while_another_pod_has_its_link() {
    let mut scene = Scene::start_with(MachineKind::Virtual, &[Family::Ipv4]);
    for state in [AgentState::Running, AgentState::Stopped, AgentState::Restarted] {
        let helper = scene.node.add_pod("helper").unwrap();
        let path = host_harness::path_of(helper.netns()).display().to_string();
        let own = "ip link add net1 index 999 address MAC type veth peer name tap";
        scene.attack(&format!("ip link set net1 name dev9 netns {path}; {own} netns {path}"), state);
        assert_eq!(scene.recorded(), 1, "{state:?}");
        let next = scene.node.add_pod("next").unwrap();
        let wants = json!([{ "vnic": "exclusive" }]);
        let refused = scene.runtime(wants).add(&next).unwrap_err().to_string();
        assert!(refused.contains("pod default/hostile is gone, and the link"), "{state:?}: {refused}");
        // As a runtime does after an ADD that failed.
        scene.del(&next, &Attachment { result: Value::Null, took: Duration::ZERO });
        next.remove().unwrap();
        if scene.agent.is_none() {
            scene.start_agent();
        }
        wait_for("the condition", || scene.reports_missing_link());
        // As the kernel does with a NIC when the namespace that has it ends.
        let mut inside = Socket::open_in(helper.netns()).unwrap();
        let index = inside.index_of(&"dev9".parse().unwrap()).unwrap();
        inside.change_link(index, &[LinkChange::Down]).unwrap();
        inside.change_link(index, &[LinkChange::Netns(scene.node.netns()), LinkChange::RenameFree]).unwrap();
        helper.remove().unwrap();
        wait_for("the end of the record", || scene.recorded() == 0 && !scene.reports_missing_link());
        // Until then an ADD fails with code 11, and the runtime retries.
        let link = format!("\"link\": \"{}\"", scene.exclusive.link);
        wait_for("pools with the link's own name", || scene.pools().contains(&link));
        scene.serves_next();
    }
}
