//! Nodes and pods as places for programs.

use std::path::Path;

use crate::fixture::{two_nodes, wait_for};
use netlink::{Netns, Socket};

#[test]
fn nodes_share_no_state_with_each_other_or_the_machine() {
    let vcn = two_nodes();
    let (a, b) = (vcn.node("node-a").unwrap(), vcn.node("node-b").unwrap());
    let name = format!("sandbox-test-{}", std::process::id());
    for folder in ["/run", "/var/lib", "/opt/cni/bin", "/etc/cni/net.d"] {
        let path = Path::new(folder).join(&name);
        a.run(|| std::fs::write(&path, "a").unwrap()).unwrap();
        assert!(a.run(|| path.exists()).unwrap());
        assert!(!b.run(|| path.exists()).unwrap() && !path.exists(), "{}", path.display());
    }
}

#[test]
fn program_on_node_sees_links_files_and_name_of_node() {
    let vcn = two_nodes();
    let a = vcn.node("node-a").unwrap();
    let script = "ls /proc/sys/net/ipv4/conf && cat /etc/hostname && uname -n && cat";
    let output = a.command("sh").args(["-c", script]).output_of_input(b"input").unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text, "all\ndefault\nens3\nens5\nlo\nnode-a\nnode-a\ninput");
}

#[test]
fn a_pod_is_where_a_runtime_would_put_it() {
    let vcn = two_nodes();
    let (a, b) = (vcn.node("node-a").unwrap(), vcn.node("node-b").unwrap());
    let pod = a.add_pod("pod-1").unwrap();
    assert_eq!(pod.path(), Path::new("/run/netns/pod-1"));
    let id = a.run(|| Netns::open(pod.path()).unwrap().id()).unwrap();
    assert_eq!(id, pod.netns().id());
    assert_eq!(pod.run(|| Netns::current().unwrap().id()).unwrap(), id);
    assert!(!b.run(|| pod.path().exists()).unwrap() && !pod.path().exists());
    let links = Socket::open_in(pod.netns()).unwrap().links().unwrap();
    assert!(matches!(links.as_slice(), [lo] if lo.loopback && lo.up));
    let seen = pod.command("sh").args(["-c", "ls /proc/sys/net/ipv4/conf; ls /run/netns"]).output().unwrap();
    assert_eq!(String::from_utf8(seen.stdout).unwrap(), "all\ndefault\nlo\npod-1\n");
    assert!(a.add_pod("pod-1").is_err(), "the name is taken");
    pod.remove().unwrap();
    assert!(!a.run(|| Path::new("/run/netns/pod-1").exists()).unwrap());
    a.add_pod("pod-1").unwrap();
}

#[test]
fn programs_end_with_the_sandbox() {
    let vcn = two_nodes();
    let mut child = vcn.node("node-a").unwrap().command("sleep").arg("1000").spawn().unwrap();
    drop(vcn);
    wait_for("the program ends", || child.try_wait().unwrap().is_some());
}
