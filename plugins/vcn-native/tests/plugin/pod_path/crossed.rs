//! CNI operations that cross each other, or come late, through a delay put into a system call of the real binary. A pod that gets
//! an address is not harmed by operations of its last owner.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output};

use crate::node::{Node, PLUGIN, Pod};
use host_harness::{Families, PATIENCE, assert_success, error_of, within};
use ipam::BootTime;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use vcn::Family;

/// The plugin under strace (packages.txt), which does something to the n-th call of a kind.
fn injected(call: &str, what: &str) -> Command {
    let mut command = Command::new("/usr/bin/strace");
    let (trace, inject) = (format!("trace={call}"), format!("inject={call}:{what}"));
    command.args(["-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject, PLUGIN]);
    command
}

/// The n-th time that a plugin opens a file.
struct NthOpen<'a> {
    path: &'a Path,
    nth: usize,
}

/// A plugin's process that is stopped.
struct StoppedPlugin {
    strace: Child,
    plugin: Pid,
    _log: NamedTempFile,
}

impl StoppedPlugin {
    /// When it opens this file for the n-th time, and before it has.
    fn at_open(node: &Node, file: NthOpen<'_>, verb: &str, pod: &Pod, conf: &Value) -> Self {
        let log = NamedTempFile::new().unwrap();
        let mut strace = Command::new("/usr/bin/strace");
        strace.arg("-f").arg("-o").arg(log.path()).arg("-P").arg(file.path);
        // glibc opens by the one call, musl by the other.
        let inject = format!("inject=open,openat:signal=SIGSTOP:when={}", file.nth);
        strace.args(["-e", "trace=open,openat", "-e", &inject, PLUGIN]);
        let strace = node.start_by(strace, verb, pod, conf);
        let stopped = || {
            let text = fs::read_to_string(log.path()).unwrap();
            let line = text.lines().find(|line| line.contains("stopped by SIGSTOP"))?;
            line.split(' ').next().map(|pid| Pid::from_raw(pid.parse().unwrap()))
        };
        assert!(within(PATIENCE, || stopped().is_some()));
        Self { plugin: stopped().unwrap(), strace, _log: log }
    }

    fn go_on(self) -> Output {
        kill(self.plugin, Signal::SIGCONT).unwrap();
        self.strace.wait_with_output().unwrap()
    }
}

/// Whether it is under way: it holds the lock of its attachment.
fn acts(node: &Node, pod: &Pod) -> bool {
    node.store().try_attachment(&format!("vcn-native/{}/eth0", pod.id).parse().unwrap()).unwrap().is_none()
}

/// Plays a case until what is slow in it was met at work: this thread may stand still for longer than that is slow.
fn repeat_until_concurrent(case: impl Fn() -> bool) {
    assert!((0..5).any(|_| case()), "it was over each time");
}

/// Whether it is met at work, and not over.
fn is_concurrent(node: &Node, pod: &Pod, slow: &mut Child) -> bool {
    let is_over = |slow: &mut Child| slow.try_wait().unwrap().is_some();
    assert!(within(PATIENCE, || acts(node, pod) || is_over(slow)));
    !is_over(slow)
}

#[test]
fn slow_del_or_gc_keeps_next_address_owner_connected() {
    let case = |verb: &str| {
        let node = Node::with_addresses(&["10.0.0.9/32"]);
        let (old, next) = (Pod::new("old"), Pod::new("next"));
        node.add(&old);
        node.age();
        let mut conf = node.conf("1.1.0");
        conf["cni.dev/valid-attachments"] = json!([]);
        let mut slow = node.start_by(injected("socket", "delay_enter=2000000:when=1"), verb, &old, &conf);
        if !is_concurrent(&node, &old, &mut slow) {
            return false;
        }
        node.del(&old);
        node.add(&next);
        assert_success(&slow.wait_with_output().unwrap());
        assert_eq!(node.pod_rules(Family::Ipv4).len(), 1, "{verb}");
        assert!(next.reaches("10.0.0.1"), "{verb}");
        true
    };
    for verb in ["DEL", "GC"] {
        repeat_until_concurrent(|| case(verb));
    }
}

#[test]
fn slow_add_keeps_its_address_until_it_ends() {
    repeat_until_concurrent(a_slow_add_keeps_its_address);
}

fn a_slow_add_keeps_its_address() -> bool {
    let node = Node::with_addresses(&["10.0.0.9/32"]);
    let (slow, other) = (Pod::new("slow"), Pod::new("other"));
    // With an empty record the first request would be the one that checks whether it was lost.
    node.add(&other);
    node.del(&other);
    // Long enough for what is done here meanwhile on a busy machine.
    let add = node.start_by(injected("sendto", "delay_enter=6000000:when=1"), "ADD", &slow, &node.conf("1.0.0"));
    assert!(within(PATIENCE, || node.held() == 1));
    node.change_held(|allocation| allocation.tentative_until = Some(BootTime(1)));
    // The lease ran out, the ADD goes on.
    if !acts(&node, &slow) {
        assert_success(&add.wait_with_output().unwrap());
        return false;
    }
    let (code, text) = node.refusal("ADD", &other);
    assert_eq!(code, 102, "{text}");
    assert_success(&add.wait_with_output().unwrap());
    assert!(slow.reaches("10.0.0.1"));
    true
}

/// CHECK reads without lock: the record becomes a lasting one when CHECK has found none of that kind, and before it reads
/// for a tentative one.
#[test]
fn check_finds_record_that_add_commits_concurrently() {
    let (node, pod) = (Node::new(Families::V4), Pod::new("a"));
    let conf = node.add_to_check(&pod);
    let record = fs::read_dir(node.file("allocations")).unwrap().next().unwrap().unwrap().path();
    let (lasting, tentative) = (record.with_extension("json"), record.with_extension("tentative"));
    fs::rename(&lasting, &tentative).unwrap();
    let check = StoppedPlugin::at_open(&node, NthOpen { path: &lasting, nth: 1 }, "CHECK", &pod, &conf);
    fs::rename(&tentative, &lasting).unwrap();
    assert_success(&check.go_on());
}

/// An ADD on a full node has seen that another's lease ran out, and that one commits before it is taken back.
#[test]
fn full_add_keeps_expired_attachment_that_commits_concurrently() {
    let node = Node::with_addresses(&["10.0.0.9/32"]);
    let (late, next) = (Pod::new("late"), Pod::new("next"));
    node.add(&late);
    let record = fs::read_dir(node.file("allocations")).unwrap().next().unwrap().unwrap().path();
    node.change_held(|allocation| allocation.tentative_until = Some(BootTime(1)));
    let tentative = record.with_extension("tentative");
    assert!(tentative.exists() && !record.exists());
    // The first time it opens the file for its own attachment's lock.
    let locks = node.file("attachments.lock");
    let add = StoppedPlugin::at_open(&node, NthOpen { path: &locks, nth: 2 }, "ADD", &next, &node.conf("1.0.0"));
    fs::rename(&tentative, &record).unwrap();
    let (code, text) = error_of(&add.go_on());
    assert_eq!(code, 102, "{text}");
    assert!(late.reaches("10.0.0.1"));
    assert_eq!(node.held(), 1);
}

#[test]
fn rebuilt_record_omits_pod_deleted_during_the_rebuild() {
    let case = |damaged: bool| {
        let node = Node::new(Families::V4);
        let (going, next) = (Pod::new("going"), Pod::new("next"));
        node.add(&going);
        fs::remove_dir_all(node.file("allocations")).unwrap();
        let index = node.file("allocations.json");
        if damaged {
            fs::write(&index, "{").unwrap()
        } else {
            fs::remove_file(&index).unwrap()
        }
        let slow = injected("flock", "delay_enter=2000000:when=2");
        let mut add = node.start_by(slow, "ADD", &next, &node.conf("1.0.0"));
        if !is_concurrent(&node, &next, &mut add) {
            return false;
        }
        node.del(&going);
        assert_success(&add.wait_with_output().unwrap());
        let held: Vec<_> = node.allocations().allocations.iter().map(|it| it.key.container_id.to_string()).collect();
        assert_eq!(held, ["next"], "damaged: {damaged}");
        true
    };
    for damaged in [true, false] {
        repeat_until_concurrent(|| case(damaged));
    }
}

#[test]
fn del_deletes_connections_when_index_is_lost() {
    let node = Node::with_addresses(&["10.0.0.9/32"]);
    let pod = Pod::new("a");
    node.add(&pod);
    fs::remove_file(node.file("allocations.json")).unwrap();
    node.sh("conntrack -I -p tcp -s 10.0.0.77 -d 10.0.0.9 --sport 5 --dport 80 --state SYN_SENT --timeout 110");
    assert!(node.sh("cat /proc/net/nf_conntrack").contains("10.0.0.77"));
    node.del(&pod);
    assert!(!node.sh("cat /proc/net/nf_conntrack").contains("10.0.0.77"));
}
