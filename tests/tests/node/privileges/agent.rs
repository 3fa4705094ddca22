//! The node agent needs every privilege that its manifest gives it: without any one of them something breaks that is
//! promised. That it needs no others, all other tests of the suite show: they run it with these.

use std::fs;
use std::path::Path;

use health::system::{Machine, System as _};
use sandbox::{Agent, Container, Runtime};

use super::node::World;
use crate::becomes_true;

/// What the agent counts when a pod's address came.
const ANNOUNCED: &str = r#"oke_node_agent_follow_up_addresses_total{what="announce",result="ok"}"#;
const NOT_ANNOUNCED: &str = r#"oke_node_agent_follow_up_addresses_total{what="announce",result="error"}"#;

impl World {
    /// Attaches and detaches a pod; whether the metrics tell of a line afterwards.
    fn metrics_tell_after_a_pod(&self, line: &str) -> bool {
        let pod = self.node.add_pod("pod").unwrap();
        Runtime::of(&self.node).unwrap().add(&pod).unwrap();
        becomes_true(|| Agent::metrics(&self.node).unwrap().contains(line))
    }

    /// The result of a health signal, once there is one.
    fn result_of(&self, signal: &str) -> Option<String> {
        let start = format!(r#"oke_node_agent_signal{{signal="{signal}""#);
        let mut found = None;
        becomes_true(|| {
            let text = Agent::metrics(&self.node).unwrap();
            let line = text.lines().find(|line| line.starts_with(&start));
            found = line.and_then(|line| line.split('"').nth(3)).map(str::to_owned);
            found.is_some()
        });
        found
    }

    /// Whether the kernel has what the agent's node needs: the setting that pods need of the VNIC's link.
    fn host_is_set_up(&self) -> bool {
        let setting = |name: &str| fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap_or_default();
        self.node.run(|| setting("conf/ens5/rp_filter").trim() == "2" && setting("ip_forward").trim() == "1").unwrap()
    }
}

#[test]
fn agent_works_with_all_privileges_of_the_manifest() {
    let world = World::new();
    let _agent = world.ready(&Container::node_agent().unwrap());
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
                let said = becomes_true(|| world.log().contains("not permitted"));
                assert!(said && !world.host_is_set_up(), "{}", world.log());
            }
            "NET_RAW" => {
                agent.wait_ready(&world.node).unwrap();
                assert!(world.metrics_tell_after_a_pod(&format!("{NOT_ANNOUNCED} 1")), "{}", world.log());
            }
            other => unreachable!("{other} is in the manifest, and no case shows what needs it"),
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
            other => unreachable!("{other} is in the manifest, and no case shows what needs it"),
        };
        assert!(becomes_true(|| world.log().contains(complaint)), "without {host}: {}", world.log());
        let conflist = Path::new("/etc/cni/net.d").join(vcn::CONFLIST_FILE);
        let works = world.node.run(|| conflist.exists()).unwrap() && world.host_is_set_up();
        assert!(!works, "without {host}: {}", world.log());
    }
}

/// What a read-only volume shows, and what is said of it.
struct Shown {
    /// Files and what is in them; `{ens5}` is the index of that link.
    files: &'static [(&'static str, &'static str)],
    /// About whom something is said.
    subject: &'static str,
    /// That it is said with the volume. Without it, the contrary.
    said: bool,
}

const NETWORKD: (&str, &str) = ("/run/systemd/netif/state", "");
const LEAVES_OTHERS: &str = "[Network]\nManageForeignRoutingPolicyRules=no\nManageForeignRoutes=no\n";
const OCID: (&str, &str) = ("/etc/systemd/system/multi-user.target.wants/ocid.service", "");

/// Nodes have no /usr of their own.
const USR: &str = "/run/usr";

fn shown(host: &str) -> Shown {
    let (files, subject, said): (&[_], _, _) = match host {
        "/etc/systemd" => (&[OCID], "ocid", true),
        "/run/systemd/netif" => (&[NETWORKD], "systemd-networkd", true),
        "/run/systemd/networkd.conf.d" => {
            (&[NETWORKD, ("/run/systemd/networkd.conf.d/1.conf", LEAVES_OTHERS)], "systemd-networkd", false)
        }
        USR => (&[NETWORKD, ("/run/usr/lib/systemd/networkd.conf.d/1.conf", LEAVES_OTHERS)], "systemd-networkd", false),
        "/run/NetworkManager/devices" => {
            (&[("/run/NetworkManager/devices/{ens5}", "[device]\nmanaged=true\n")], "NetworkManager, ens5", true)
        }
        "/etc/oci-utils.conf.d" => {
            (&[OCID, ("/etc/oci-utils.conf.d/00-oci-utils.conf", "[vnic]\nenabled = false\n")], "ocid", false)
        }
        other => unreachable!("{other} is in the manifest, and no case shows what needs it"),
    };
    Shown { files, subject, said }
}

#[test]
fn each_volume_that_reveals_other_configuring_programs_is_needed() {
    let manifest = Container::node_agent().unwrap().with_volume_at("/usr".as_ref(), USR.as_ref());
    let shows_programs = |volume: &&sandbox::Volume| volume.read_only && volume.host != Path::new("/sys/fs/cgroup");
    for volume in manifest.volumes().iter().filter(shows_programs) {
        let host = volume.host.to_str().unwrap();
        let Shown { files, subject, said } = shown(host);
        let is_reported = |container: &Container| {
            let world = World::new();
            let write = || {
                let index = netlink::Socket::open().unwrap().index_of(&"ens5".parse().unwrap()).unwrap();
                fs::create_dir(USR).unwrap();
                for (file, text) in files {
                    let path = file.replace("{ens5}", &index.to_string());
                    fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
                    fs::write(path, text).unwrap();
                }
            };
            world.node.run(write).unwrap();
            let _agent = world.ready(container);
            // The last line of the pass that made it ready; /readyz is a moment earlier.
            assert!(becomes_true(|| world.log().contains("agent.ready")), "{}", world.log());
            world.log().contains(&format!("\"subject\":\"{subject}\""))
        };
        assert_eq!(is_reported(&manifest), said, "with {host}");
        assert_eq!(is_reported(&manifest.clone().without_volume(&volume.host)), !said, "without {host}");
    }
}

#[test]
fn signals_of_services_need_the_cgroups() {
    const CGROUPS: &str = "/sys/fs/cgroup";
    const ELSEWHERE: &str = "/run/cgroup";
    let manifest = Container::node_agent().unwrap().with_volume_at(CGROUPS.as_ref(), ELSEWHERE.as_ref());
    /// The kubelet's processes as a container sees them, whose PID namespace they are not in: `cgroup.procs` of version 1 is empty.
    const VERSION_1: &[(&str, &str)] = &[
        ("systemd/kube.slice/kubelet.service/cgroup.procs", ""),
        ("pids/kube.slice/kubelet.service/cgroup.procs", ""),
        ("pids/kube.slice/kubelet.service/pids.current", "31\n"),
    ];
    const VERSION_2: &[(&str, &str)] =
        &[("cgroup.controllers", ""), ("kube.slice/kubelet.service/cgroup.events", "populated 1\nfrozen 0\n")];
    let result = |container: &Container, files: &[(&str, &str)]| {
        let world = World::new();
        let write = || {
            for (file, text) in files {
                let path = Path::new(ELSEWHERE).join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
        };
        world.node.run(write).unwrap();
        let _agent = world.ready(container);
        world.result_of("kubelet_running")
    };
    for files in [VERSION_1, VERSION_2] {
        assert_eq!(result(&manifest, files).as_deref(), Some("healthy"), "{files:?}");
    }
    let without = manifest.clone().without_volume(ELSEWHERE.as_ref());
    assert_eq!(result(&without, VERSION_2).as_deref(), Some("unknown"));
}

#[test]
fn signals_of_the_kernel_log_need_the_optional_capability() {
    // The sandbox's filter refuses the call in any case; a runtime's default profile allows it with the capability.
    let manifest = include_str!("../../../../manifests/base/daemonset.yaml")
        .replace("- NET_RAW\n", "- NET_RAW\n                - SYSLOG\n")
        .replace("type: RuntimeDefault", "type: Unconfined");
    let granted = Container::of_daemon_set(&manifest, &[]).unwrap();
    assert!(granted.capabilities().contains(&"SYSLOG".to_owned()));
    let result = |container: &Container| {
        let world = World::new();
        let _agent = world.ready(container);
        world.result_of("kernel_io_errors").unwrap()
    };
    // In a user namespace no capability opens a log that the kernel restricts.
    let is_readable = Machine.kernel_log().is_ok();
    assert_eq!(result(&granted) != "not_applicable", is_readable);
    assert_eq!(result(&Container::node_agent().unwrap()), "not_applicable");
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
    let conflist = Path::new("/etc/cni/net.d").join(vcn::CONFLIST_FILE);
    let settled = || {
        let log = world.log();
        // By nothing at first, where the metadata service is slow to answer.
        let decided = |line: &str| line.contains(r#""install":false"#) && !line.contains(r#""decided_by":"nothing""#);
        world.node.run(|| conflist.exists()).unwrap() || log.lines().any(decided)
    };
    assert!(becomes_true(settled), "{}", world.log());
    (world.node.run(|| conflist.exists()).unwrap(), world.log())
}

#[test]
fn takeover_requires_each_volume_of_its_patch_to_find_pods() {
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
    assert!(!done && log.contains("/var/lib/cni"), "it is unknown whether pods are here: {log}");
}
