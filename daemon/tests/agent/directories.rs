//! Directories that are removed or moved away on the host while the agent's container has them mounted.

use std::fs;
use std::io::ErrorKind;

use vcn::CONFLIST_FILE;

use crate::node::{Node, SLOW_RESYNC, wait_for};
use crate::running::at_once;

/// The agent ends because of what was done to a directory, and the next one has everything in place.
fn ends_and_the_next_heals(node: &Node, directory: &str, options: &[&str], work: impl Fn()) {
    let agent = node.ready_agent(options);
    work();
    // It may notice its lock's absence first.
    let says = |line: &str| line.contains(directory) && line.contains("was removed or moved away while it was in use");
    wait_for("its end", || agent.log().lines().any(says), || agent.log());
    assert_eq!(agent.stop().0.code(), Some(1));
    let _next = node.ready_agent(options);
    for file in ["run/pools.json", "lib/tables.json", "bin/vcn-native", &format!("net.d/{CONFLIST_FILE}")] {
        assert!(node.path(file).exists(), "{directory}: {file}");
    }
}

/// The file of the NativePodNetwork is in another directory.
fn node() -> Node {
    let node = Node::with_pods();
    fs::create_dir_all(node.path("host/usr")).unwrap();
    fs::rename(node.npn(), node.path("host/usr/npn.json")).unwrap();
    node
}

const NPN: [&str; 2] = ["--npn-file", "/host/usr/npn.json"];

const VOLUMES: [(&str, &str); 4] =
    [("/run/vcn-native", "run"), ("/var/lib/vcn-native", "lib"), ("/opt/cni/bin", "bin"), ("/etc/cni/net.d", "net.d")];

#[test]
fn agent_ends_when_its_directory_was_replaced() {
    at_once(VOLUMES, |(directory, below)| {
        let node = node();
        ends_and_the_next_heals(&node, directory, &[&SLOW_RESYNC[..], &NPN].concat(), || {
            // What the agent puts back meanwhile makes it fail.
            wait_for("its removal", || fs::remove_dir_all(node.path(below)).is_ok(), String::new);
            fs::create_dir(node.path(below)).unwrap();
        });
    });
}

/// No file that the agent watches changes: the slow look finds it.
#[test]
fn agent_ends_when_its_directory_or_socket_was_moved_away() {
    let sockets =
        [("/run/vcn-native/agent.sock", "run/agent.sock"), ("/run/vcn-native/telemetry.sock", "run/telemetry.sock")];
    at_once(VOLUMES[2..].iter().chain(&sockets), |(place, below)| {
        let node = node();
        ends_and_the_next_heals(&node, place, &NPN, || {
            fs::rename(node.path(below), node.path("away")).unwrap();
            if !below.ends_with("sock") {
                fs::create_dir(node.path(below)).unwrap();
            }
        });
    });
}

#[test]
fn agent_ends_when_its_state_directory_was_emptied() {
    let node = node();
    ends_and_the_next_heals(&node, "/run/vcn-native/agent.lock", &[&SLOW_RESYNC[..], &NPN].concat(), || {
        for entry in fs::read_dir(node.path("run")).unwrap() {
            let path = entry.unwrap().path();
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            // The agent replaces files by temporary ones, and ends meanwhile.
            assert!(!removed.is_err_and(|error| error.kind() != ErrorKind::NotFound), "{path:?}");
        }
    });
    let _agent = node.ready_agent(&NPN);
    let (answered, said) = node.run(&["status"]);
    assert!(answered && said.contains("running, version"), "{said}");
}
