//! Side by side with OKE's own CNI, and in its place.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use netlink::{LinkKind, Netns, NewLink, Peer, Socket};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use sandbox::Container;

use crate::node::{Node, PORTMAP, PROGRAM, told};
use crate::uninstall::kernel::Host;

const OKE: &str = r#"{"cniVersion":"0.3.1","name":"oci","plugins":[{"type":"oci-ipvlan"},{"type":"oci-ptp"}]}"#;
const TAKEOVER: [&str; 4] = ["--node-label", "true", "--usable", "--takeover"];

fn node() -> Node {
    let node = Node::new();
    fs::write(node.path("net.d/10-oci.conflist"), OKE).unwrap();
    node
}

/// The agent's container without the patch, which is for nodes that OKE's own CNI serves.
fn without_witnesses(node: &Node) -> Container {
    node.placed(Container::node_agent().unwrap()).running([PROGRAM])
}

#[test]
fn where_okes_own_cni_is_nothing_is_installed_and_the_reason_is_told() {
    let node = node();
    let before = node.snapshot();
    for (arguments, decided) in [
        (&["--node-label", "true", "--usable"][..], "oke-conflist"),
        (&["--node-label", "true", "--usable", "--oke-daemonset", "present"], "oke-conflist"),
        (&["--pod-network", "vcn-native", "--usable"], "oke-conflist"),
    ] {
        let (code, text) = node.run(arguments);
        assert_eq!(code, 0, "{text}");
        assert!(text.starts_with(&format!("decision: leave alone ({decided}): 10-oci.conflist is present")), "{text}");
        assert_eq!(node.snapshot(), before);
    }
    fs::remove_file(node.path("net.d/10-oci.conflist")).unwrap();
    let (_, text) = node.run(&["--node-label", "true", "--usable", "--oke-daemonset", "present"]);
    assert!(
        text.starts_with("decision: leave alone (oke-daemonset): the DaemonSet vcn-native-ip-cni exists"),
        "{text}"
    );
    assert_eq!(node.names(), Vec::<String>::new());
}

#[test]
fn takeover_is_refused_where_vnics_are_kept_for_application_resources() {
    let node = node();
    let before = node.snapshot();
    let (code, text) = node.run(&[&TAKEOVER[..], &["--application-resources", "present"]].concat());
    assert_eq!(code, 0, "{text}");
    assert!(text.starts_with("decision: leave alone (application-resources): takeover is set, but VNICs"), "{text}");
    assert_eq!(node.snapshot(), before);
}

#[test]
fn a_dry_run_prints_no_control_characters() {
    let node = Node::new();
    fs::write(node.path("net.d/10-\u{1b}[2J\nstatus: x.conflist"), OKE).unwrap();
    let (_, text) = node.run(&["--node-label", "true", "--usable", "--dry-run"]);
    assert!(text.contains("10-\\u{1b}[2J\\nstatus: x.conflist is present"), "{text}");
    assert!(
        !text.contains('\u{1b}') && text.lines().filter(|line| line.starts_with("status: ")).count() == 1,
        "{text}"
    );
}

#[test]
fn takeover_waits_until_no_pod_of_its_network_lives_here() {
    let node = node();
    fs::write(node.path("cache/results/oci-0123abcd-eth0"), "{}").unwrap();
    let (code, text) = node.run(&TAKEOVER);
    assert_eq!(code, 0, "{text}");
    assert!(
        text.starts_with("decision: leave alone (oke-pods): takeover is set, but pods of OKE's own CNI run"),
        "{text}"
    );
    assert!(text.contains("oci-0123abcd-eth0") && text.contains("drain the node"), "{text}");
    assert_eq!(node.names(), ["net.d/10-oci.conflist"]);

    fs::remove_file(node.path("cache/results/oci-0123abcd-eth0")).unwrap();
    fs::create_dir_all(node.path("shm/used/10.0.32.7")).unwrap();
    assert!(node.run(&TAKEOVER).1.contains("(oke-pods)"));
    fs::remove_dir_all(node.path("shm")).unwrap();

    let (code, text) = node.run(&TAKEOVER);
    assert_eq!(code, 0, "{text}");
    assert_eq!(node.names(), ["bin/vcn-native", "net.d/05-vcn-native.conflist", "net.d/10-oci.conflist"]);
    assert_eq!(fs::read_to_string(node.path("net.d/10-oci.conflist")).unwrap(), OKE, "theirs is not touched");

    fs::write(node.path("cache/results/vcn-native-0123-eth0"), "{}").unwrap();
    let (_, text) = node.run(&TAKEOVER);
    assert!(text.contains("status: installed"), "our own pods do not undo it: {text}");
}

/// Between the first look and the moment in which our configuration would appear, plugins are asked, which may take seconds.
#[test]
fn a_pod_that_comes_while_the_takeover_is_prepared_is_seen() {
    let node = node();
    let pod = node.path("cache/results/oci-0123abcd-eth0");
    // A plugin that is asked says so where it may write, and waits.
    fs::create_dir_all(node.path("lib")).unwrap();
    mkfifo(&node.path("lib/comes"), Mode::S_IRWXU).unwrap();
    let mut comes = File::options().read(true).write(true).open(node.path("lib/comes")).unwrap();
    let waits = "#!/bin/sh\n: >/var/lib/vcn-native/asked\nread word </var/lib/vcn-native/comes\n";
    node.executable("bin/portmap", &PORTMAP.replace("#!/bin/sh\n", waits));
    let installing = node.command(&TAKEOVER).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(90);
    while !node.path("lib/asked").exists() {
        assert!(Instant::now() < end, "it was never asked");
        thread::sleep(Duration::from_millis(1));
    }
    fs::write(&pod, "{}").unwrap();
    comes.write_all(&[b'\n'; 100]).unwrap();
    let (code, text) = told(&installing.wait_with_output().unwrap());
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("leave alone (oke-pods)") && text.contains("oci-0123abcd-eth0"), "{text}");
    assert!(!node.conflist().exists());
    let (_, text) = node.run(&["--node-label", "true", "--usable", "--oke-daemonset", "present"]);
    assert!(text.contains("leave alone"), "it is not recorded as installed: {text}");
    fs::remove_file(pod).unwrap();
    node.executable("bin/portmap", PORTMAP);
    assert!(node.run(&TAKEOVER).1.contains("status: installed"));
}

#[test]
fn a_pod_that_only_the_kernel_remembers_is_found_and_links_of_the_hosts_own_are_none() {
    let pod = Netns::create().unwrap();
    for (commands, address) in [
        (&["ip route add 10.0.32.9 dev veth0"][..], "10.0.32.9"),
        (&["ip route add 10.0.32.9 dev veth0 table 77"], "10.0.32.9"),
        (&["ip -6 route add 2001:db8::9 dev veth0"], "2001:db8::9"),
    ] {
        let (node, host) = (node(), Host::new());
        // A container behind a bridge.
        let others = [
            "ip link add br0 type bridge",
            "ip link set br0 up",
            "ip route add 10.88.0.9 dev br0",
            // Of the host itself.
            "ip addr add 2001:db8:1::1/128 dev ens5",
        ];
        host.inside(|| {
            others.iter().for_each(|command| sh(command));
            for (link, master) in [("veth0", None), ("veth1", Some("br0"))] {
                let peer = Peer { name: link.parse().unwrap(), mac: None, mtu: None, netns: Some(pod.as_fd()) };
                let mut new = NewLink::new(link.parse().unwrap(), LinkKind::Veth(peer));
                new.up = true;
                Socket::open().unwrap().add_link(&new).unwrap();
                master.into_iter().for_each(|master| sh(&format!("ip link set {link} master {master}")));
            }
            commands.iter().for_each(|command| sh(command));
        });
        let (code, text) = host.inside(|| node.run(&TAKEOVER));
        assert_eq!(code, 0, "{text}");
        assert!(text.contains("(oke-pods)") && text.contains(&format!("a route to {address} by veth0")), "{text}");
        assert_eq!(node.names(), ["net.d/10-oci.conflist"]);
        fs::rename(node.path("net.d/10-oci.conflist"), node.path("aside")).unwrap();
        let (_, text) = host.inside(|| node.run(&["--node-label", "true", "--usable"]));
        assert!(text.contains("(oke-pods)") && node.names().is_empty(), "whether or not OKE's is here: {text}");
        fs::rename(node.path("aside"), node.path("net.d/10-oci.conflist")).unwrap();
        host.inside(|| sh("ip link del veth0"));
        let (_, text) = host.inside(|| node.run(&TAKEOVER));
        assert!(text.contains("status: installed"), "{text}");
        pod.run(|| sh("ip link del veth1")).unwrap();
    }
}

fn sh(command: &str) {
    let mut words = command.split(' ');
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{command}: {output:?}");
}

#[test]
fn pods_that_okes_own_cni_left_behind_are_found_though_nothing_else_of_it_is_left() {
    for (witness, seen) in [
        ("cache/results/oci-0123abcd-eth0", "/var/lib/cni/results/oci-0123abcd-eth0"),
        ("shm/used/10.0.32.7", "/dev/shm/oci-cni/used"),
    ] {
        let node = Node::new();
        fs::create_dir_all(node.path(witness).parent().unwrap()).unwrap();
        fs::write(node.path(witness), "").unwrap();
        let (code, text) = node.run(&["--node-label", "true", "--usable"]);
        assert_eq!(code, 0, "{text}");
        assert!(text.starts_with("decision: leave alone (oke-pods): pods of another pod network run"), "{text}");
        assert!(text.contains(seen) && text.contains("drain the node"), "{text}");
        assert_eq!(node.names(), Vec::<String>::new());
        fs::remove_file(node.path(witness)).unwrap();
        assert!(node.run(&["--node-label", "true", "--usable"]).1.contains("status: installed"));
    }
    // Where nobody can tell, there is no reason to think of OKE's.
    let node = Node::new();
    let (_, text) = node.run_in(&without_witnesses(&node), &["--node-label", "true", "--usable"]);
    assert!(text.contains("status: installed"), "{text}");
}

#[test]
fn where_we_were_before_others_pods_do_not_keep_our_configuration_from_healing() {
    let node = Node::new();
    assert_eq!(node.run(&["--node-label", "true", "--usable"]).0, 0);
    fs::remove_file(node.conflist()).unwrap();
    fs::write(node.path("cache/results/oci-0123abcd-eth0"), "{}").unwrap();
    let (_, text) = node.run(&["--node-label", "true", "--usable"]);
    assert!(text.contains("status: installed"), "{text}");
    fs::remove_file(node.conflist()).unwrap();
    fs::write(node.path("net.d/10-oci.conflist"), OKE).unwrap();
    let (_, text) = node.run(&TAKEOVER);
    assert!(text.contains("(oke-pods)"), "OKE's came back, and so did its pods: {text}");
}

/// Its DaemonSet is one object for all nodes. Who rewrites a file removes it first, some write it in pieces.
#[test]
fn beside_okes_daemonset_our_configuration_heals_whatever_was_done_to_it_unless_okes_pods_came() {
    let node = Node::new();
    let arguments = ["--node-label", "true", "--usable", "--oke-daemonset", "present"];
    assert_eq!(node.run(&["--node-label", "true", "--usable"]).0, 0);
    let whole = fs::read(node.conflist()).unwrap();
    let spoilt: [(&str, &dyn Fn()); 3] = [
        ("removed", &|| fs::remove_file(node.conflist()).unwrap()),
        ("emptied", &|| fs::write(node.conflist(), "").unwrap()),
        ("half written", &|| fs::write(node.conflist(), &whole[..whole.len() / 2]).unwrap()),
    ];
    for (what, spoil) in spoilt {
        spoil();
        let (code, text) = node.run(&arguments);
        assert!(code == 0 && text.starts_with("decision: install (node-label)"), "{what}: {text}");
        assert!(text.contains("the DaemonSet vcn-native-ip-cni exists") && text.contains("ours is kept up"), "{text}");
        assert_eq!(fs::read(node.conflist()).unwrap(), whole, "{what}: {text}");
    }
    fs::remove_file(node.conflist()).unwrap();
    fs::write(node.path("cache/results/oci-0123abcd-eth0"), "{}").unwrap();
    let (_, text) = node.run(&arguments);
    assert!(text.contains("leave alone (oke-pods)") && !node.conflist().exists(), "{text}");
}

#[test]
fn takeover_is_refused_where_pods_cannot_be_looked_for() {
    let node = node();
    let (code, text) = node.run_in(&without_witnesses(&node), &TAKEOVER);
    assert_eq!(code, 0, "{text}");
    assert!(
        text.contains("(oke-pods)") && text.contains("may run on this node") && text.contains("takeover.yaml"),
        "{text}"
    );
    assert_eq!(node.names(), ["net.d/10-oci.conflist"]);
}
