//! A pipe in the place of a state file: no verb waits for it or takes it for state. The files that are set aside or replaced are in
//! `crates/ipam/tests/store/damage.rs`; a verb that opens one by itself hangs at the pipe.

use std::fs;
use std::process::Command;

use host_harness::{Families, error_of};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::node::{Node, PLUGIN, Pod};

#[test]
fn pipe_in_place_of_pools_or_lock_is_refused_by_name() {
    for file in ["allocations.lock", "attachments.lock", "pools.json"] {
        let (node, running, pod) = (Node::new(Families::V4), Pod::new("running"), Pod::new("pod"));
        node.add(&running);
        fs::remove_file(node.file(file)).unwrap();
        mkfifo(&node.file(file), Mode::S_IRWXU).unwrap();
        // No verb takes a second; a busy machine is slow. A wait for a pipe never ends.
        let mut bounded = Command::new("timeout");
        bounded.args(["--signal=KILL", "60", PLUGIN]);
        let add = node.start_by(bounded, "ADD", &pod, &node.conf("1.0.0"));
        let (code, text) = error_of(&add.wait_with_output().unwrap());
        assert!(code == 101 && text.contains(file) && text.contains("not a regular file"), "{file}: {text}");
        assert!(running.reaches("10.0.0.1"));
    }
}
