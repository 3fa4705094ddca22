//! A node is uninstalled as an operator does it: the agent's DaemonSet deleted, `manifests/uninstall.yaml` applied. Under
//! exactly the privileges of that manifest the node becomes what it was before, and each of them is needed.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, its helper functions too")]

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sandbox::{Agent, Container, Image, Node, NodeSpec, NpnShape, Runtime, SubnetSpec, Vcn, VnicSpec};

/// What is ours, or might be: with the addresses and mode of each file.
const FILES: &str = "find /opt/cni /etc/cni /run/vcn-native /var/lib/vcn-native /etc/systemd /etc/NetworkManager \
                     -type f,l -printf '%p %m %U %l\\n' -exec sh -c 'test -L {} || sha256sum {}' ';' 2>/dev/null | sort";

/// The host's network. That an address was probed shows by itself, and that a link was up once can never be undone.
const KERNEL: &str = "(ip -details link show; ip addr show) | sed 's/ tentative / /; s/qdisc noop /qdisc noqueue /'; \
                      ip -4 route show table all; ip -6 route show table all; \
                      ip -4 rule; ip -6 rule; ip neigh show proxy; nft list ruleset; \
                      for key in ipv4/ip_forward ipv6/conf/all/forwarding ipv4/conf/ens3/rp_filter \
                      ipv4/conf/ens5/rp_filter ipv4/neigh/ens5/proxy_delay; do cat /proc/sys/net/$key; done";

const FOREIGN: &str = "somebody's plugin of that name";

struct World {
    _vcn: Vcn,
    node: Arc<Node>,
    files: String,
    kernel: String,
}

fn bin_dir() -> PathBuf {
    let directory = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().to_owned();
    for program in ["oke-node-agent", "oke-cni-installer", "vcn-native"] {
        assert!(directory.join(program).is_file(), "{program} is not built: cargo build --workspace --bins");
    }
    directory
}

impl World {
    /// A node as it boots, with a plugin of our name that is somebody's own user's, and somebody's kernel state.
    fn new() -> Self {
        let vcn = Vcn::builder()
            .subnet(SubnetSpec::new("nodes", "10.0.0.0/24".parse().unwrap()))
            .subnet(SubnetSpec::new("pods", "10.0.32.0/24".parse().unwrap()))
            .node(
                NodeSpec::virtual_machine("node", "nodes")
                    .metadata("oke-native-pod-networking", "true")
                    .vnic(VnicSpec::for_pods("pods", 3)),
            )
            .start()
            .unwrap();
        let node = vcn.node("node").unwrap();
        sandbox::publish_native_pod_network(&vcn, &node, NpnShape::PerFamily).unwrap();
        node.run(|| {
            fs::create_dir_all("/opt/cni/bin").unwrap();
            fs::write("/opt/cni/bin/vcn-native", FOREIGN).unwrap();
            chown("/opt/cni/bin/vcn-native", Some(1000), Some(1000)).unwrap();
        })
        .unwrap();
        let mut world = Self { _vcn: vcn, node, files: String::new(), kernel: String::new() };
        world.sh("ip rule add pref 4242 from 192.0.2.1 lookup 4242; nft add table inet theirs");
        // The kernel takes note of a carrier, and has an address ready, some time after.
        let end = Instant::now() + Duration::from_secs(20);
        let settled = |links: &str| {
            ["state UP", "scope link", "fe80::/64 dev ens3", "ff00::/8 dev ens3"]
                .iter()
                .all(|sign| links.contains(sign))
                && !links.contains("tentative")
        };
        while !settled(&world.sh("ip link show ens3; ip addr show ens3; ip -6 route show table all")) {
            assert!(Instant::now() < end, "the primary link never settled");
            std::thread::sleep(Duration::from_millis(5));
        }
        (world.files, world.kernel) = world.looks();
        world
    }

    fn sh(&self, script: &str) -> String {
        let output = self.node.command("sh").args(["-c", script]).output().unwrap();
        String::from_utf8(output.stdout).unwrap() + std::str::from_utf8(&output.stderr).unwrap()
    }

    fn looks(&self) -> (String, String) {
        (self.sh(FILES), self.sh(KERNEL))
    }

    /// Both to the byte, for as little as differs.
    fn assert_as_before(&self, text: &str) {
        let (files, kernel) = self.looks();
        for (now, before) in [(&files, &self.files), (&kernel, &self.kernel)] {
            let more: Vec<_> = now.lines().filter(|line| !before.lines().any(|other| other == *line)).collect();
            let less: Vec<_> = before.lines().filter(|line| !now.lines().any(|other| other == *line)).collect();
            assert!(now == before, "more: {more:#?}\nless: {less:#?}\n{text}");
        }
    }

    /// The node has our network, and the agent is gone.
    fn installed(&self) {
        let mut agent = Agent::start(&self.node, &bin_dir()).unwrap();
        agent.wait_ready(&self.node).unwrap();
        agent.stop().unwrap();
    }

    fn uninstall(&self, container: &Container) -> (i32, String) {
        let image = Image::of_programs(&bin_dir());
        let output: Output = self.node.container(container, &image).unwrap().output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap() + std::str::from_utf8(&output.stderr).unwrap();
        (output.status.code().unwrap(), text)
    }
}

#[test]
fn a_node_is_what_it_was_before_the_agent_came() {
    let world = World::new();
    world.installed();
    assert_ne!(world.looks(), (world.files.clone(), world.kernel.clone()), "there is something to uninstall");
    let (code, text) = world.uninstall(&Container::uninstaller().unwrap());
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("status: removed"), "{text}");
    world.assert_as_before(&text);
    assert_eq!(world.uninstall(&Container::uninstaller().unwrap()).0, 0, "a pod that is restarted does it again");
}

#[test]
fn while_the_agent_or_a_pod_is_there_it_is_refused_and_the_node_works_on() {
    let world = World::new();
    let uninstaller = Container::uninstaller().unwrap();
    let mut agent = Agent::start(&world.node, &bin_dir()).unwrap();
    agent.wait_ready(&world.node).unwrap();
    let (code, text) = world.uninstall(&uninstaller);
    assert!(code == 75 && text.contains("the node agent runs"), "{text}");
    let pod = world.node.add_pod("pod").unwrap();
    let attachment = Runtime::of(&world.node).unwrap().add(&pod).unwrap();
    agent.stop().unwrap();
    let before = world.looks();
    let (code, text) = world.uninstall(&uninstaller);
    assert!(code == 75 && text.contains("1 attachment(s) of this boot hold addresses"), "{text}");
    assert_eq!(world.looks(), before);
    Runtime::of(&world.node).unwrap().del(&pod, &attachment).unwrap();
    let (code, text) = world.uninstall(&uninstaller);
    assert_eq!(code, 0, "{text}");
    world.assert_as_before(&text);
}

#[test]
fn with_force_pods_lose_their_network_and_the_node_is_what_it_was() {
    let world = World::new();
    world.installed();
    let pod = world.node.add_pod("pod").unwrap();
    Runtime::of(&world.node).unwrap().add(&pod).unwrap();
    let forced =
        Container::uninstaller().unwrap().running(["/usr/local/bin/oke-cni-installer", "uninstall", "--force"]);
    let (code, text) = world.uninstall(&forced);
    assert_eq!(code, 0, "{text}");
    world.assert_as_before(&text);
}

#[test]
fn each_capability_is_needed() {
    let manifest = Container::uninstaller().unwrap();
    for capability in manifest.capabilities() {
        let world = World::new();
        world.installed();
        let (code, text) = world.uninstall(&manifest.clone().without_capability(capability));
        let complaint = match capability.as_str() {
            "NET_ADMIN" => "Operation not permitted",
            "CHOWN" => "giving it to its owner failed",
            other => unreachable!("{other} is in the manifest, and nobody said what needs it"),
        };
        assert!(code == 1 && text.contains(complaint), "without {capability}: {text}");
        let (code, text) = world.uninstall(&manifest);
        assert_eq!(code, 0, "what was not done is done by the next: {text}");
        world.assert_as_before(&text);
    }
}

#[test]
fn each_volume_is_needed() {
    let manifest = Container::uninstaller().unwrap();
    for volume in manifest.volumes() {
        let world = World::new();
        world.installed();
        let pod = world.node.add_pod("pod").unwrap();
        let attachment = Runtime::of(&world.node).unwrap().add(&pod).unwrap();
        if !volume.host.starts_with("/run") {
            Runtime::of(&world.node).unwrap().del(&pod, &attachment).unwrap();
        }
        let (code, text) = world.uninstall(&manifest.clone().without_volume(&volume.host));
        let (files, kernel) = world.looks();
        match volume.host.to_str().unwrap() {
            // Without it nobody knows of the pod but by its link.
            "/run/vcn-native" => assert!(code == 75 && !text.contains("hold addresses"), "{text}"),
            "/proc/sys/net" => assert_ne!(kernel, world.kernel, "{code}: {text}"),
            "/opt/cni/bin" | "/etc/cni/net.d" | "/var/lib/vcn-native" => assert_ne!(files, world.files, "{text}"),
            other => unreachable!("{other} is in the manifest, and nobody said what needs it"),
        }
    }
}

#[test]
fn drop_ins_need_the_patch_and_go_with_it() {
    let mut world = World::new();
    let theirs = "etc/NetworkManager/conf.d";
    // A host with NetworkManager, which manages the VNIC's link.
    let write = || {
        fs::create_dir_all("/run/NetworkManager/devices").unwrap();
        fs::write("/run/NetworkManager/devices/1", "[device]\nmanaged=false\n").unwrap();
        fs::create_dir_all(Path::new("/").join(theirs)).unwrap();
        fs::write("/etc/NetworkManager/conf.d/theirs.conf", "theirs").unwrap();
    };
    world.node.run(write).unwrap();
    (world.files, world.kernel) = world.looks();
    let allowed =
        Container::node_agent().unwrap().with_volume(&Path::new("/").join(theirs), &Path::new("/host").join(theirs));
    let words = ["/usr/local/bin/oke-node-agent", "run", "--host-drop-ins", "allow"];
    let mut agent = Agent::start_in(&allowed.running(words), &world.node, &bin_dir()).unwrap();
    agent.wait_ready(&world.node).unwrap();
    agent.stop().unwrap();
    assert!(world.sh("cat /etc/NetworkManager/conf.d/*").contains("unmanaged-devices"));

    let (code, text) = world.uninstall(&Container::uninstaller().unwrap());
    assert!(code == 1 && text.contains("uninstall-drop-ins.yaml"), "{text}");
    let (code, text) = world.uninstall(&Container::uninstaller_of_drop_ins().unwrap());
    assert_eq!(code, 0, "{text}");
    world.assert_as_before(&text);
}
