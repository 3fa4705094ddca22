//! What is no state file in the place of one: no verb waits for a pipe, follows a link or reads a huge file.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::node::{Families, Node, PLUGIN, Pod, assert_success, error_of, json_of};

/// No verb takes a second; a busy machine is slow. A wait for a pipe never ends.
const AT_MOST: Duration = Duration::from_secs(60);

/// Address space of a run, in bytes: a huge file does not fit.
const MEMORY: u64 = 1 << 30;

const OUTSIDE: &str = "another program's";

/// An object that takes the place of a file.
#[derive(Clone, Copy, Debug)]
enum Obstacle {
    Pipe,
    Link,
    Huge,
}

const ALL: [Obstacle; 3] = [Obstacle::Pipe, Obstacle::Link, Obstacle::Huge];

/// A node with a running pod, and a file outside of the state directory.
struct Scene {
    node: Node,
    running: Pod,
    outside: tempfile::NamedTempFile,
}

impl Scene {
    fn new() -> Self {
        let (node, running, outside) = (Node::new(Families::V4), Pod::new("running"), tempfile::NamedTempFile::new());
        let outside = outside.unwrap();
        fs::write(&outside, OUTSIDE).unwrap();
        node.add(&running);
        Self { node, running, outside }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.node.state.path().join(name)
    }

    fn record(&self, pod: &Pod) -> PathBuf {
        let records = fs::read_dir(self.path("allocations")).unwrap().map(|entry| entry.unwrap().path());
        let of_it = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(&format!("{}-", pod.id));
        records.into_iter().find(of_it).unwrap()
    }

    fn plant(&self, obstacle: Obstacle, path: &Path) {
        let _ = fs::remove_file(path);
        match obstacle {
            Obstacle::Pipe => mkfifo(path, Mode::S_IRWXU).unwrap(),
            Obstacle::Link => symlink(&self.outside, path).unwrap(),
            Obstacle::Huge => File::create(path).unwrap().set_len(3 << 30).unwrap(),
        }
    }

    /// Runs a verb with little memory, and not for long.
    fn verb(&self, verb: &str, pod: &Pod) -> std::process::Output {
        let mut bounded = Command::new("timeout");
        let seconds = AT_MOST.as_secs().to_string();
        bounded.args(["--signal=KILL", &seconds, "prlimit", &format!("--as={MEMORY}"), PLUGIN]);
        let began = Instant::now();
        let output = self.node.start_by(bounded, verb, pod, &self.node.conf("1.0.0")).wait_with_output().unwrap();
        assert!(began.elapsed() < AT_MOST && output.status.code().is_some_and(|code| code <= 1), "{verb}: {output:?}");
        output
    }

    fn assert_sound(&self, case: &str) {
        assert_eq!(fs::read_to_string(&self.outside).unwrap(), OUTSIDE, "{case}");
        assert!(self.running.reaches("10.0.0.1"), "{case}");
    }
}

#[test]
fn add_and_del_set_aside_index_of_wrong_file_type() {
    for obstacle in ALL {
        let (scene, case) = (Scene::new(), format!("{obstacle:?}"));
        let index = scene.path("allocations.json");
        let (pod, goes) = (Pod::new("pod"), Pod::new("goes"));
        scene.node.add(&goes);
        scene.plant(obstacle, &index);
        let given = json_of(&scene.verb("ADD", &pod));
        assert!(pod.reaches("10.0.0.1") || pod.reaches("10.0.1.1"), "{case}: {given}");
        assert!(index.symlink_metadata().unwrap().is_file(), "{case}");
        assert!(scene.path("allocations.json.damaged").symlink_metadata().is_ok(), "{case}");
        assert_eq!(scene.node.allocations().allocations.len(), 3, "{case}: all pods are on record");
        scene.plant(obstacle, &index);
        assert_success(&scene.verb("DEL", &goes));
        assert_eq!(scene.node.allocations().allocations.len(), 2, "{case}");
        scene.assert_sound(&case);
    }
}

#[test]
fn record_that_is_no_plain_file_is_rebuilt_from_kernel() {
    for obstacle in ALL {
        let (scene, case) = (Scene::new(), format!("{obstacle:?}"));
        let record = scene.record(&scene.running);
        scene.plant(obstacle, &record);
        assert_success(&scene.verb("ADD", &Pod::new("another")));
        scene.assert_sound(&case);
        assert_success(&scene.verb("DEL", &scene.running));
        assert!(record.symlink_metadata().is_err(), "{case}");
        assert_eq!(scene.node.pod_rules(vcn::Family::Ipv4).len(), 1, "{case}: the other pod's");
    }
}

#[test]
fn no_temporary_file_is_written_through_a_planted_link() {
    for obstacle in ALL {
        let (scene, case) = (Scene::new(), format!("{obstacle:?}"));
        let pod = Pod::new("pod");
        // Where the record of this pod will be staged.
        scene.node.add(&pod);
        let staged = scene.record(&pod).with_extension("new");
        scene.node.del(&pod);
        for path in [staged, scene.path("allocations.json.new")] {
            scene.plant(obstacle, &path);
        }
        assert_success(&scene.verb("ADD", &pod));
        scene.plant(obstacle, &scene.path("allocations.json.new"));
        assert_success(&scene.verb("DEL", &pod));
        scene.assert_sound(&case);
    }
}

#[test]
fn pools_and_locks_must_be_plain_files() {
    for obstacle in ALL {
        let scene = Scene::new();
        let pools = fs::read(scene.path("pools.json")).unwrap();
        let why = match obstacle {
            Obstacle::Pipe => "not a regular file",
            Obstacle::Link => "symbolic link, which is not followed",
            Obstacle::Huge => "it has 3221225472 bytes, and at most 8388608 are read",
        };
        scene.plant(obstacle, &scene.path("pools.json"));
        let (code, text) = error_of(&scene.verb("ADD", &Pod::new("pod")));
        assert!(code == 101 && text.contains("pools.json is damaged") && text.contains(why), "{obstacle:?}: {text}");
        fs::remove_file(scene.path("pools.json")).unwrap();
        fs::write(scene.path("pools.json"), pools).unwrap();
        // How large a lock's file is makes no difference.
        for lock in ["allocations.lock", "attachments.lock"].iter().filter(|_| !matches!(obstacle, Obstacle::Huge)) {
            scene.plant(obstacle, &scene.path(lock));
            let (code, text) = error_of(&scene.verb("ADD", &Pod::new("pod")));
            assert!(code == 101 && text.contains(lock) && text.contains(why), "{obstacle:?} {lock}: {text}");
            fs::remove_file(scene.path(lock)).unwrap();
        }
        scene.assert_sound(&format!("{obstacle:?}"));
    }
}
