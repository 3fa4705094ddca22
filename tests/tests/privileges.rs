//! The node agent needs every privilege that its manifest gives it: without any one of them something breaks that is
//! promised. That it needs no others, all other tests of the suite show: they run it with these.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, its helper functions too")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sandbox::{Agent, Container, Node, NodeSpec, NpnShape, Runtime, SubnetSpec, Vcn, VnicSpec};

/// Far beyond what anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the agent counts when a pod's address came.
const ANNOUNCED: &str = r#"oke_node_agent_aftercare_addresses_total{what="announce",result="ok"}"#;
const NOT_ANNOUNCED: &str = r#"oke_node_agent_aftercare_addresses_total{what="announce",result="error"}"#;

struct World {
    _vcn: Vcn,
    node: Arc<Node>,
}

fn bin_dir() -> PathBuf {
    let directory = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().to_owned();
    for program in ["oke-node-agent", "vcn-native"] {
        assert!(directory.join(program).is_file(), "{program} is not built: cargo build --workspace --bins");
    }
    directory
}

impl World {
    /// A node as it boots, with a NativePodNetwork.
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
        Self { _vcn: vcn, node }
    }

    fn start(&self, container: &Container) -> Agent {
        Agent::start_in(container, &self.node, &bin_dir()).unwrap()
    }

    /// Attaches and detaches a pod; whether the metrics tell of a line afterwards.
    fn metrics_tell_after_a_pod(&self, line: &str) -> bool {
        let pod = self.node.add_pod("pod").unwrap();
        Runtime::of(&self.node).unwrap().add(&pod).unwrap();
        within_patience(|| Agent::metrics(&self.node).unwrap().contains(line))
    }

    fn log(&self) -> String {
        Agent::log(&self.node).unwrap()
    }

    /// Whether the kernel has what the agent's node needs: the setting that pods need of the VNIC's link.
    fn host_is_set_up(&self) -> bool {
        let setting = |name: &str| fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap_or_default();
        self.node.run(|| setting("conf/ens5/rp_filter").trim() == "2" && setting("ip_forward").trim() == "1").unwrap()
    }
}

fn within_patience(mut condition: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        if condition() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

#[test]
fn with_all_of_its_privileges_it_does_its_work() {
    let world = World::new();
    let mut agent = world.start(&Container::node_agent().unwrap());
    agent.wait_ready(&world.node).unwrap();
    assert!(world.host_is_set_up(), "{}", world.log());
    assert!(world.metrics_tell_after_a_pod(&format!("{ANNOUNCED} 1")), "{}", world.log());
    assert!(!world.log().contains("not permitted"), "{}", world.log());
}

#[test]
fn each_capability_is_needed() {
    let manifest = Container::node_agent().unwrap();
    for capability in manifest.capabilities() {
        let world = World::new();
        let mut agent = world.start(&manifest.clone().without_capability(capability));
        match capability.as_str() {
            "NET_ADMIN" => {
                let said = within_patience(|| world.log().contains("not permitted"));
                assert!(said && !world.host_is_set_up(), "{}", world.log());
            }
            "NET_RAW" => {
                agent.wait_ready(&world.node).unwrap();
                assert!(world.metrics_tell_after_a_pod(&format!("{NOT_ANNOUNCED} 1")), "{}", world.log());
            }
            other => unreachable!("{other} is in the manifest, and nobody said what needs it"),
        }
    }
}

#[test]
fn each_volume_is_needed() {
    let manifest = Container::node_agent().unwrap();
    for volume in manifest.volumes().iter().filter(|volume| !volume.read_only) {
        let world = World::new();
        let _agent = world.start(&manifest.clone().without_volume(&volume.host));
        let host = volume.host.to_str().unwrap();
        let complaint = match host {
            "/opt/cni/bin" | "/etc/cni/net.d" | "/run/vcn-native" | "/var/lib/vcn-native" => host,
            "/proc/sys/net" => "cannot write sysctl net/ipv4/ip_forward",
            other => unreachable!("{other} is in the manifest, and nobody said what needs it"),
        };
        assert!(within_patience(|| world.log().contains(complaint)), "without {host}: {}", world.log());
        let conflist = Path::new("/etc/cni/net.d").join(vcn::CONFLIST_FILE);
        let works = world.node.run(|| conflist.exists()).unwrap() && world.host_is_set_up();
        assert!(!works, "without {host}: {}", world.log());
    }
}

/// What each read-only volume shows, and what is said of it: without the volume, nothing.
#[test]
fn each_volume_that_shows_who_else_configures_the_host_is_needed() {
    let manifest = Container::node_agent().unwrap();
    for volume in manifest.volumes().iter().filter(|volume| volume.read_only) {
        let host = volume.host.to_str().unwrap().to_owned();
        let (file, text, subject) = match host.as_str() {
            "/etc/systemd" => ("system/multi-user.target.wants/ocid.service", "", "ocid"),
            "/run/systemd/netif" => ("state", "", "systemd-networkd"),
            "/run/NetworkManager/devices" => ("{ens5}", "[device]\nmanaged=true\n", "NetworkManager, ens5"),
            "/etc/oci-utils.conf.d" => ("00-oci-utils.conf", "[vnic]\nenabled = false\n", "ocid"),
            other => unreachable!("{other} is in the manifest, and nobody said what needs it"),
        };
        // That one says that nothing is to be told.
        let silences = host == "/etc/oci-utils.conf.d";
        let told = |container: &Container| {
            let world = World::new();
            let write = || {
                let index = netlink::Socket::open().unwrap().index_of(&"ens5".parse().unwrap()).unwrap();
                let path = Path::new(&host).join(file.replace("{ens5}", &index.to_string()));
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
                if silences {
                    let wants = Path::new("/etc/systemd/system/multi-user.target.wants");
                    fs::create_dir_all(wants).unwrap();
                    fs::write(wants.join("ocid.service"), "").unwrap();
                }
            };
            world.node.run(write).unwrap();
            let mut agent = world.start(container);
            agent.wait_ready(&world.node).unwrap();
            world.log().contains(&format!("\"subject\":\"{subject}\""))
        };
        assert_eq!(told(&manifest), !silences, "with {host}");
        assert_eq!(told(&manifest.clone().without_volume(&volume.host)), silences, "without {host}");
    }
}

/// Of OKE's own CNI.
const OKE: &str = r#"{"cniVersion":"0.4.0","name":"oci","plugins":[{"type":"oci-ipvlan"},{"type":"oci-ptp"}]}"#;

/// A node that OKE's own CNI serves, and what the agent of a container says about it.
fn taken_over(container: &Container, prepare: impl Fn() + Send + Sync) -> (bool, String) {
    let world = World::new();
    let write = || {
        fs::write("/etc/cni/net.d/10-oci.conflist", OKE).unwrap();
        prepare();
    };
    world.node.run(write).unwrap();
    let _agent = world.start(container);
    assert!(within_patience(|| world.log().contains("pod_network.decided")), "{}", world.log());
    let conflist = Path::new("/etc/cni/net.d").join(vcn::CONFLIST_FILE);
    let settled = || {
        let log = world.log();
        world.node.run(|| conflist.exists()).unwrap() || log.contains(r#""install":false"#)
    };
    assert!(within_patience(settled), "{}", world.log());
    (world.node.run(|| conflist.exists()).unwrap(), world.log())
}

#[test]
fn takeover_needs_each_volume_of_its_patch_and_finds_pods_by_them() {
    let oke_state = Path::new("/run/oci-cni");
    let patched = Container::node_agent_taking_over().unwrap().with_volume_at("/dev/shm/oci-cni".as_ref(), oke_state);
    let plain = Container::node_agent().unwrap();
    let more: Vec<_> = patched.volumes().iter().filter(|volume| !plain.volumes().contains(volume)).collect();
    assert!(more.len() == 2 && more.iter().all(|volume| volume.read_only), "{more:?}");
    let (done, log) = taken_over(&patched, || {});
    assert!(done, "no pod is left: {log}");
    let of_a_pod = |directory: &'static str, file: &'static str| {
        move || {
            fs::create_dir_all(directory).unwrap();
            fs::write(Path::new(directory).join(file), "").unwrap();
        }
    };
    for (directory, file, seen) in [
        ("/var/lib/cni/results", "oci-pod-eth0", "/var/lib/cni/results"),
        ("/run/oci-cni/used", "10.0.32.9", "/dev/shm/oci-cni/used"),
    ] {
        let (done, log) = taken_over(&patched, of_a_pod(directory, file));
        assert!(!done && log.contains(seen), "a pod of OKE's is here: {log}");
    }
    let (done, log) = taken_over(&patched.clone().without_volume("/var/lib/cni".as_ref()), || {});
    assert!(!done && log.contains("/var/lib/cni"), "nobody can tell whether pods are here: {log}");
}
