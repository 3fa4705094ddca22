//! A pipe in the place of a state file: no verb waits for it or takes it for state. The files that are read and written another
//! way (links, huge files) are in `crates/ipam/src/file/tests.rs`; a verb that opens one by itself hangs at the pipe.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use host_harness::{Families, assert_success, error_of, json_of};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::node::{Node, PLUGIN, Pod};

/// A node with a running pod.
struct Scene {
    node: Node,
    running: Pod,
}

impl Scene {
    fn new() -> Self {
        let (node, running) = (Node::new(Families::V4), Pod::new("running"));
        node.add(&running);
        Self { node, running }
    }

    fn record(&self, pod: &Pod) -> PathBuf {
        let records = fs::read_dir(self.node.file("allocations")).unwrap().map(|entry| entry.unwrap().path());
        let of_it = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(&format!("{}-", pod.id));
        records.into_iter().find(of_it).unwrap()
    }

    /// Runs a verb. None takes a second; a busy machine is slow. A wait for a pipe never ends.
    fn verb(&self, verb: &str, pod: &Pod) -> Output {
        let mut bounded = Command::new("timeout");
        bounded.args(["--signal=KILL", "60", PLUGIN]);
        let output = self.node.start_by(bounded, verb, pod, &self.node.conf("1.0.0")).wait_with_output().unwrap();
        assert!(output.status.code().is_some_and(|code| code <= 1), "{verb}: {output:?}");
        output
    }
}

fn plant(path: &Path) {
    let _ = fs::remove_file(path);
    mkfifo(path, Mode::S_IRWXU).unwrap();
}

#[test]
fn pipe_in_place_of_index_or_record_is_set_aside() {
    let scene = Scene::new();
    let index = scene.node.file("allocations.json");
    let (pod, goes) = (Pod::new("pod"), Pod::new("goes"));
    scene.node.add(&goes);
    plant(&index);
    let given = json_of(&scene.verb("ADD", &pod));
    assert!(pod.reaches("10.0.0.1") || pod.reaches("10.0.1.1"), "{given}");
    assert!(index.symlink_metadata().unwrap().is_file());
    assert!(scene.node.file("allocations.json.damaged").symlink_metadata().is_ok());
    assert_eq!(scene.node.held(), 3, "all pods are on record");
    plant(&index);
    assert_success(&scene.verb("DEL", &goes));
    assert_eq!(scene.node.held(), 2);

    let record = scene.record(&scene.running);
    plant(&record);
    assert_success(&scene.verb("ADD", &Pod::new("another")));
    assert!(scene.running.reaches("10.0.0.1"));
    assert_success(&scene.verb("DEL", &scene.running));
    assert!(record.symlink_metadata().is_err());
    assert_eq!(scene.node.pod_rules(vcn::Family::Ipv4).len(), 2, "the other pods'");
}

#[test]
fn pipe_in_place_of_a_temporary_file_is_replaced() {
    let (scene, pod) = (Scene::new(), Pod::new("pod"));
    // Where the record of this pod will be staged.
    scene.node.add(&pod);
    let staged = scene.record(&pod).with_extension("new");
    scene.node.del(&pod);
    [staged, scene.node.file("allocations.json.new")].iter().for_each(|path| plant(path));
    assert_success(&scene.verb("ADD", &pod));
    plant(&scene.node.file("allocations.json.new"));
    assert_success(&scene.verb("DEL", &pod));
}

#[test]
fn pipe_in_place_of_pools_or_lock_is_refused_by_name() {
    for file in ["allocations.lock", "attachments.lock", "pools.json"] {
        let scene = Scene::new();
        plant(&scene.node.file(file));
        let (code, text) = error_of(&scene.verb("ADD", &Pod::new("pod")));
        assert!(code == 101 && text.contains(file) && text.contains("not a regular file"), "{file}: {text}");
        assert!(scene.running.reaches("10.0.0.1"));
    }
}
