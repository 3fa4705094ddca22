//! What is no state file in the place of one: the agent waits for no pipe, follows no link and reads no huge file.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::follow_up::dual_stack_node;
use crate::node::{Node, wait_for};
use crate::pod::Pod;

/// All that the agent and its installer keep in files.
const FILES: [&str; 8] = [
    "run/pools.json",
    "run/allocations.json",
    "lib/tables.json",
    "lib/vnics-seen.json",
    "lib/nativepodnetwork-seen.json",
    "lib/reported-conditions.json",
    "lib/installer.json",
    "lib/sysctls.json",
];

/// Of them, what a node in order has: the others are written in a cluster.
const WRITTEN: [&str; 5] =
    ["run/pools.json", "run/allocations.json", "lib/tables.json", "lib/vnics-seen.json", "lib/installer.json"];

/// The manifest's limit of the agent's memory, in KiB.
const MEMORY: u64 = 64 << 10;

#[test]
fn agent_starts_with_pipes_in_place_of_its_files() {
    assert_recovers(|_, path| mkfifo(path, Mode::S_IRWXU).unwrap());
}

#[test]
fn agent_starts_with_links_in_place_of_its_files() {
    let outside = |node: &Node| node.path("lib/outside");
    let node = assert_recovers(|node, path| {
        fs::write(outside(node), "foreign").unwrap();
        symlink("outside", path).unwrap();
        let _ = symlink("outside", format!("{}.new", path.display()));
    });
    assert_eq!(fs::read_to_string(outside(&node)).unwrap(), "foreign");
    assert!(!node.path("run/outside").exists(), "nor is a file made where a link leads");
}

#[test]
fn agent_starts_within_its_memory_with_huge_files() {
    assert_recovers(|_, path| File::create(path).unwrap().set_len(3 << 30).unwrap());
}

fn assert_recovers(plant: impl Fn(&Node, &Path)) -> Node {
    let node = dual_stack_node();
    let mut agent = node.agent(&[]);
    node.wait_ready(&mut agent);
    let pod = Pod::add(&node, "a");
    drop(agent);
    for file in FILES {
        let path = node.path(file);
        let _ = fs::remove_file(&path);
        plant(&node, &path);
    }
    let mut agent = node.agent(&[]);
    node.wait_ready(&mut agent);
    let sound = |file: &&str| node.path(file).symlink_metadata().is_ok_and(|it| it.is_file() && it.len() < 1 << 20);
    let all = || WRITTEN.iter().all(sound) && node.conditions().is_empty();
    wait_for("the files", all, || format!("{:?}\n{}", node.get("/readyz"), agent.log()));
    pod.wait_connected();
    Pod::add(&node, "b").wait_connected();
    let status = fs::read_to_string(format!("/proc/{}/status", agent.id())).unwrap();
    assert!(status.starts_with("Name:\toke-node-agent"), "{status}");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 2 * MEMORY, "{peak} KiB, a debug build's");
    node
}
