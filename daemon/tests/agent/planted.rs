//! A pipe in the place of a state file: the agent does not wait for it.

use std::fs;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::follow_up::dual_stack_node;
use crate::node::wait_for;
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

/// How links and huge files are treated is in `crates/ipam/src/file/tests.rs`: what opens a file by itself waits for a pipe.
#[test]
fn agent_starts_with_pipes_in_place_of_its_files() {
    let (node, agent) = dual_stack_node().with_agent(&[]);
    let pod = Pod::add(&node, "a");
    drop(agent);
    for file in FILES {
        let path = node.path(file);
        let _ = fs::remove_file(&path);
        mkfifo(&path, Mode::S_IRWXU).unwrap();
        let _ = mkfifo(path.with_extension("json.new").as_path(), Mode::S_IRWXU);
    }
    let agent = node.ready_agent(&[]);
    let sound = |file: &&str| node.path(file).symlink_metadata().is_ok_and(|it| it.is_file() && it.len() < 1 << 20);
    let all = || WRITTEN.iter().all(sound) && node.conditions().is_empty();
    wait_for("the files", all, || format!("{:?}\n{}", node.get("/readyz"), agent.log()));
    pod.wait_connected();
    Pod::add(&node, "b").wait_connected();
}
