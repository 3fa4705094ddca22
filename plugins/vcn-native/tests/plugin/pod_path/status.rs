//! STATUS decides whether a node is ready: it answers at once whatever else goes on, and says no for one reason only.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::time::{Duration, Instant};

use host_harness::{Families, PATIENCE, assert_success, error_of, within};
use ipam::BootTime;
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use telemetry::{Delivery, Listener, Sink, VerbRecord};

use crate::node::{Node, PLUGIN, Pod};

fn status(node: &Node) -> std::process::Output {
    node.call(&[("CNI_COMMAND", "STATUS")], &node.conf("1.1.0"))
}

/// Half of fifty answers come within 100 ms, and none takes 5 s. Only what the program does itself counts, not its
/// waits for a processor.
fn assert_quick(node: &Node, code: u64) {
    let mut took: Vec<Duration> = (0..50).map(|_| timed(node, code)).collect();
    took.sort();
    println!("STATUS took {:?} as a rule, {:?} at most", took[25], took[49]);
    assert!(took[25] <= Duration::from_millis(100) && took[49] < Duration::from_secs(5), "{took:?}");
}

/// How long one takes, whose answer has this code.
fn timed(node: &Node, code: u64) -> Duration {
    let (begun, waited) = (Instant::now(), kept_waiting("thread-self"));
    let mut child = node.spawn(Command::new(PLUGIN), &[("CNI_COMMAND", "STATUS")], &node.conf("1.1.0"));
    let id = Pid::from_raw(child.id().try_into().unwrap());
    // An ended process is there until its status is read.
    let ended = || waitid(Id::Pid(id), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG).unwrap();
    let came = within(PATIENCE, || ended() != WaitStatus::StillAlive);
    let took = begun.elapsed();
    // It would outlive the test.
    child.kill().unwrap();
    assert!(came, "it hangs");
    let excused = kept_waiting(&child.id().to_string()) + kept_waiting("thread-self").saturating_sub(waited);
    let output = child.wait_with_output().unwrap();
    assert_eq!(if output.status.success() { 0 } else { error_of(&output).0 }, code);
    took.saturating_sub(excused)
}

/// How long a thread has waited for a processor so far.
fn kept_waiting(thread: &str) -> Duration {
    // On a processor, waiting for one (both in nanoseconds), how often.
    let text = fs::read_to_string(format!("/proc/{thread}/schedstat")).unwrap();
    Duration::from_nanos(text.split_whitespace().nth(1).unwrap().parse().unwrap())
}

#[test]
fn status_waits_for_no_lock_and_no_other_verb() {
    let node = Node::new(Families::Dual);
    node.add(&Pod::new("a"));
    let lock = File::options().write(true).create(true).truncate(false).open(node.file("allocations.lock")).unwrap();
    lock.lock().unwrap();
    let waiting = Pod::new("b");
    let mut add = node.start("ADD", &waiting, &node.conf("1.1.0"));
    assert_quick(&node, 0);
    assert!(add.try_wait().unwrap().is_none(), "the lock does stop others");
    drop(lock);
    assert!(add.wait().unwrap().success());
}

/// A program listens at both of the agent's sockets, and hangs: of one the queue is full, the other accepts no connection.
#[test]
fn status_waits_for_no_agent_that_listens_and_never_answers() {
    let node = Node::new(Families::Dual);
    let _records = Listener::bind(node.state.path()).unwrap();
    let sink = Sink::new(node.state.path());
    let filled = || sink.send(&VerbRecord::begin("vcn-native", "0", "ADD")) == Delivery::Log;
    assert!((0..10_000).any(|_| filled()), "a queue has an end");
    let path = node.file("agent.sock");
    let _questions = UnixListener::bind(&path).unwrap();
    let mut sockets = Vec::new();
    let full = || {
        let socket = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_NONBLOCK, None).unwrap();
        let refused = connect(socket.as_raw_fd(), &UnixAddr::new(&path).unwrap()) == Err(Errno::EAGAIN);
        sockets.push(socket);
        refused
    };
    assert!(std::iter::repeat_with(full).take(10_000).any(|full| full), "a backlog has an end");
    assert_quick(&node, 0);
    fs::remove_file(node.file("pools.json")).unwrap();
    assert_quick(&node, 50);
    let records = telemetry::read_log(node.state.path()).unwrap();
    assert_eq!(
        records.iter().filter(|it| (it.verb.as_str(), it.code) == ("STATUS", 50)).count(),
        50,
        "each is reported"
    );
}

#[test]
fn status_stays_fast_with_many_pods_and_large_range() {
    let node = Node::new(Families::V6);
    let mut pools = node.pools();
    for (number, vnic) in pools.vnics.iter_mut().enumerate() {
        vnic.families.ipv6.as_mut().unwrap().addresses = vec![format!("2001:db8:{number}:8000::/65").parse().unwrap()];
    }
    node.write_pools(pools.vnics);
    (0..10).for_each(|id| drop(node.add(&Pod::new(&format!("p{id}")))));
    assert_quick(&node, 0);
}

#[test]
fn status_fails_when_pools_are_damaged_or_of_another_boot() {
    for content in ["", "{", "[]", r#"{"version":1,"bootId":"00000000-0000-0000-0000-000000000000","vnics":[]}"#] {
        let node = Node::new(Families::V4);
        fs::write(node.file("pools.json"), content).unwrap();
        let (code, text) = error_of(&status(&node));
        assert!(code == 50 && text.contains("pools.json") && text.contains("oke-node-agent why-not-ready"), "{text}");
        assert!(!text.contains("\\n"), "kubelet shows one line: {text}");
    }
}

#[test]
fn status_grants_one_grace_period_after_losing_the_last_vnic() {
    let node = Node::new(Families::V4);
    let now = BootTime::now().unwrap().0;
    for (since, healthy) in [(0, false), (now.saturating_sub(31_000).max(1), false), (now, true), (u64::MAX, true)] {
        let mut pools = node.pools();
        pools.vnics.clear();
        pools.empty_since = Some(BootTime(since));
        pools.write(node.state.path()).unwrap();
        let answer = status(&node);
        assert_eq!(answer.status.success(), healthy, "{since} at {now}");
        let said = String::from_utf8(answer.stdout).unwrap();
        let why = "\"no VNIC has addresses for pods; `oke-node-agent why-not-ready`";
        assert!(healthy || said.contains("\"code\":50") && said.contains(why), "{said}");
    }
}

#[test]
fn status_succeeds_when_index_is_damaged() {
    let node = Node::new(Families::V4);
    node.add(&Pod::new("a"));
    fs::write(node.file("allocations.json"), "{").unwrap();
    assert_success(&status(&node));
}
