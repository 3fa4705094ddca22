//! Next to OKE's own CNI, and in its place.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use netlink::{LinkKind, Netns, NewLink, Peer, Socket};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use sandbox::Container;

use crate::node::{INSTALL, Node, PORTMAP, PROGRAM, printed};
use crate::uninstall::kernel::{Host, run as sh};

const OKE: &str = r#"{"cniVersion":"0.3.1","name":"oke","plugins":[{"type":"oci-ipvlan"},{"type":"oci-ptp"}]}"#;
const TAKEOVER: [&str; 4] = ["--signal-node-label", "true", "--cni-usable", "--cni-takeover"];

/// A pod in the runtime's cache, of the network that OKE's configuration names by default.
const CACHED: &str = "cache/results/oci-0123abcd-eth0";

fn node() -> Node {
    let node = Node::new();
    fs::write(node.path("net.d/10-oci.conflist"), OKE).unwrap();
    node
}

/// The agent's container without the patch for nodes that OKE's own CNI serves, which mounts what shows its pods.
fn unpatched(node: &Node) -> Container {
    node.placed(Container::node_agent().unwrap()).running([PROGRAM])
}

#[test]
fn nothing_is_installed_next_to_okes_cni() {
    let node = node();
    let before = node.snapshot();
    for (arguments, decided) in [
        (&INSTALL[..], "oke-conflist): 10-oci.conflist is present"),
        (&[&INSTALL[..], &["--signal-oke-daemonset", "present"]].concat(), "oke-conflist): 10-oci.conflist is present"),
        (&["--pod-network", "vcn-native", "--cni-usable"], "oke-conflist): 10-oci.conflist is present"),
        (
            &[&TAKEOVER[..], &["--signal-application-resources", "present"]].concat(),
            "application-resources): takeover is set, but VNICs",
        ),
    ] {
        let (code, text) = node.run(arguments);
        assert!(code == 0 && text.starts_with(&format!("decision: leave alone ({decided}")), "{text}");
        assert_eq!(node.snapshot(), before);
    }
    fs::remove_file(node.path("net.d/10-oci.conflist")).unwrap();
    let (_, text) = node.run(&[&INSTALL[..], &["--signal-oke-daemonset", "present"]].concat());
    assert!(
        text.starts_with("decision: leave alone (oke-daemonset): the DaemonSet vcn-native-ip-cni exists"),
        "{text}"
    );
    assert!(node.names().is_empty());
}

#[test]
fn report_contains_no_control_characters() {
    let node = Node::new();
    fs::write(node.path("net.d/10-\u{1b}[2J\nstatus: x.conflist"), OKE).unwrap();
    let (_, text) = node.run(&[&INSTALL[..], &["--dry-run"]].concat());
    assert!(text.contains("10-\\u{1b}[2J\\nstatus: x.conflist is present"), "{text}");
    let statuses = text.lines().filter(|line| line.starts_with("status: ")).count();
    assert!(!text.contains('\u{1b}') && statuses == 1, "{text}");
}

#[test]
fn takeover_waits_until_no_pod_of_okes_cni_runs() {
    let node = node();
    for (pod, shown) in [
        (CACHED, "oci-0123abcd-eth0"),
        ("cache/results/oke-0123abcd-eth0", "oke-0123abcd-eth0"),
        ("shm/used/10.0.32.7", "10.0.32.7"),
    ] {
        fs::create_dir_all(node.path(pod).parent().unwrap()).unwrap();
        fs::write(node.path(pod), "{}").unwrap();
        let (code, text) = node.run(&TAKEOVER);
        let refused = "decision: leave alone (oke-pods): takeover is set, but pods of OKE's own CNI run";
        assert!(code == 0 && text.starts_with(refused), "{text}");
        assert!(text.contains(shown) && text.contains("drain the node"), "{text}");
        assert_eq!(node.names(), ["net.d/10-oci.conflist"]);
        fs::remove_file(node.path(pod)).unwrap();
    }
    let (_, text) = node.run_in(&unpatched(&node), &TAKEOVER);
    assert!(text.contains("(oke-pods)") && text.contains("takeover.yaml"), "pods cannot be looked for: {text}");

    fs::write(node.path("cache/results/podman-0123-eth0"), "{}").unwrap();
    let (code, text) = node.run(&TAKEOVER);
    assert_eq!(code, 0, "{text}");
    assert_eq!(node.names(), ["bin/vcn-native", "net.d/05-vcn-native.conflist", "net.d/10-oci.conflist"]);
    assert_eq!(fs::read_to_string(node.path("net.d/10-oci.conflist")).unwrap(), OKE);
    fs::write(node.path("cache/results/vcn-native-0123-eth0"), "{}").unwrap();
    let (_, text) = node.run(&TAKEOVER);
    assert!(text.contains("status: installed"), "our own pods do not undo it: {text}");
}

/// Between the decision and the moment when our configuration would appear, plugins are called, which may take seconds.
#[test]
fn pod_that_starts_during_a_takeover_is_noticed() {
    let node = node();
    // The plugin reports that it is called, and waits.
    fs::create_dir_all(node.path("lib")).unwrap();
    mkfifo(&node.path("lib/comes"), Mode::S_IRWXU).unwrap();
    let mut comes = File::options().read(true).write(true).open(node.path("lib/comes")).unwrap();
    let waits = "#!/bin/sh\n: >/var/lib/vcn-native/called\nread word </var/lib/vcn-native/comes\n";
    node.executable("bin/portmap", &PORTMAP.replace("#!/bin/sh\n", waits));
    let installing = node.command(&TAKEOVER).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(90);
    while !node.path("lib/called").exists() {
        assert!(Instant::now() < end, "it was never called");
        thread::sleep(Duration::from_millis(1));
    }
    fs::write(node.path(CACHED), "{}").unwrap();
    comes.write_all(&[b'\n'; 100]).unwrap();
    let (code, text) = printed(&installing.wait_with_output().unwrap());
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("leave alone (oke-pods)") && text.contains("oci-0123abcd-eth0"), "{text}");
    assert!(!node.conflist().exists());
    let (_, text) = node.run(&[&INSTALL[..], &["--signal-oke-daemonset", "present"]].concat());
    assert!(text.contains("leave alone"), "it is not recorded as installed: {text}");
    fs::remove_file(node.path(CACHED)).unwrap();
    node.executable("bin/portmap", PORTMAP);
    assert!(node.run(&TAKEOVER).1.contains("status: installed"));
}

#[test]
fn pod_that_only_the_kernel_shows_is_found() {
    let pod = Netns::create().unwrap();
    for (command, address) in [
        ("ip route add 10.0.32.9 dev veth0", "10.0.32.9"),
        ("ip route add 10.0.32.9 dev veth0 table 77", "10.0.32.9"),
        ("ip -6 route add 2001:db8::9 dev veth0", "2001:db8::9"),
    ] {
        let (node, host) = (node(), Host::new());
        host.inside(|| {
            // A container behind a bridge, and an address of the host itself.
            for command in [
                "ip link add br0 type bridge",
                "ip link set br0 up",
                "ip route add 10.88.0.9 dev br0",
                "ip addr add 2001:db8:1::1/128 dev ens5",
            ] {
                sh(command);
            }
            for (link, master) in [("veth0", None), ("veth1", Some("br0"))] {
                let peer = Peer { name: link.parse().unwrap(), mac: None, mtu: None, netns: Some(pod.as_fd()) };
                let mut new = NewLink::new(link.parse().unwrap(), LinkKind::Veth(peer));
                new.up = true;
                Socket::open().unwrap().add_link(&new).unwrap();
                master.into_iter().for_each(|master| drop(sh(&format!("ip link set {link} master {master}"))));
            }
            sh(command);
        });
        let (code, text) = host.inside(|| node.run(&TAKEOVER));
        assert_eq!(code, 0, "{text}");
        assert!(text.contains("(oke-pods)") && text.contains(&format!("a route to {address} by veth0")), "{text}");
        assert_eq!(node.names(), ["net.d/10-oci.conflist"]);
        fs::rename(node.path("net.d/10-oci.conflist"), node.path("aside")).unwrap();
        let (_, text) = host.inside(|| node.run(&INSTALL));
        assert!(text.contains("(oke-pods)") && node.names().is_empty(), "with or without OKE's file: {text}");
        fs::rename(node.path("aside"), node.path("net.d/10-oci.conflist")).unwrap();
        host.inside(|| sh("ip link del veth0"));
        let (_, text) = host.inside(|| node.run(&TAKEOVER));
        assert!(text.contains("status: installed"), "{text}");
        pod.run(|| sh("ip link del veth1")).unwrap();
    }
}

#[test]
fn pods_that_okes_cni_left_behind_are_found() {
    for (pod, shown) in [(CACHED, "/var/lib/cni/results/oci-0123abcd-eth0"), ("shm/used/x", "/dev/shm/oci-cni/used")] {
        let node = Node::new();
        fs::create_dir_all(node.path(pod).parent().unwrap()).unwrap();
        fs::write(node.path(pod), "").unwrap();
        let (code, text) = node.run(&INSTALL);
        let refused = "decision: leave alone (oke-pods): pods of another pod network run";
        assert!(code == 0 && text.starts_with(refused) && text.contains(shown), "{text}");
        assert!(node.names().is_empty());
        fs::remove_file(node.path(pod)).unwrap();
        assert!(node.run(&INSTALL).1.contains("status: installed"));
    }
    // Where pods cannot be looked for, nothing suggests OKE's.
    let node = Node::new();
    let (_, text) = node.run_in(&unpatched(&node), &INSTALL);
    assert!(text.contains("status: installed"), "{text}");
}

#[test]
fn existing_installation_is_repaired_unless_okes_pods_came() {
    let node = Node::new();
    assert_eq!(node.run(&INSTALL).0, 0);
    let whole = fs::read(node.conflist()).unwrap();
    let with_okes_cni = [&INSTALL[..], &["--signal-oke-daemonset", "present"]].concat();
    fs::write(node.conflist(), &whole[..whole.len() / 2]).unwrap();
    let (code, text) = node.run(&with_okes_cni);
    assert!(code == 0 && text.contains("it is maintained"), "{text}");
    assert_eq!(fs::read(node.conflist()).unwrap(), whole, "{text}");
    fs::remove_file(node.conflist()).unwrap();
    fs::write(node.path(CACHED), "{}").unwrap();
    let (_, text) = node.run(&with_okes_cni);
    assert!(text.contains("leave alone (oke-pods)") && !node.conflist().exists(), "{text}");
    let (_, text) = node.run(&INSTALL);
    assert!(text.contains("status: installed"), "without a sign of OKE's own CNI our pods lived with them: {text}");
    fs::remove_file(node.conflist()).unwrap();
    fs::write(node.path("net.d/10-oci.conflist"), OKE).unwrap();
    assert!(node.run(&TAKEOVER).1.contains("(oke-pods)"));
}
