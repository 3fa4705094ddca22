//! Nothing outlives a sandbox, two never meet, and no root is needed.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::fixture::{two_nodes, wait_for, wait_until_reaches};
use netlink::{LinkKind, Netns, NewLink, Peer, Socket};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use vcn::Family;

const NOBODY: u32 = 65534;

#[test]
fn two_sandboxes_at_once_do_not_collide() {
    let (one, two) = (two_nodes(), two_nodes());
    std::thread::scope(|scope| {
        for vcn in [&one, &two] {
            scope.spawn(move || {
                let (a, b) = (vcn.node("node-a").unwrap(), vcn.node("node-b").unwrap());
                let (from, to) = (a.address(Family::Ipv4).unwrap(), b.address(Family::Ipv4).unwrap());
                for _ in 0..20 {
                    wait_until_reaches((a.netns(), from), (b.netns(), to));
                }
            });
        }
    });
    assert_eq!((one.drops(), two.drops()), (vec![], vec![]), "the same MACs and addresses, without a drop");
}

/// A namespace is gone when the kernel took down a link that we put there: the link's other end, which is here, vanishes.
#[test]
fn kill_9_leaves_no_process_namespace_or_link() {
    let here = Netns::create().unwrap();
    let mut socket = Socket::open_in(&here).unwrap();
    let mounts_before = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mut outer = Command::new(env!("CARGO_BIN_EXE_oke-sandbox"))
        .args(["up", "--", "sh", "-c", "sleep 1000 & echo ready; wait"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut nodes = 0;
    for line in BufReader::new(outer.stdout.take().unwrap()).lines().map_while(Result::ok) {
        if let Some((_, rest)) = line.split_once("--net=") {
            let node = Netns::open(Path::new(rest.split(' ').next().unwrap())).unwrap();
            nodes += 1;
            tie(&mut socket, &node, nodes);
        }
        if line == "ready" {
            break;
        }
    }
    assert_eq!((nodes, socket.links().unwrap().len()), (2, 3), "two nodes, each tied to here");
    let family = descendants(outer.id());
    assert!(family.len() >= 4, "init, worker, shell, sleep: {family:?}");

    kill(Pid::from_raw(outer.id().try_into().unwrap()), Signal::SIGKILL).unwrap();
    outer.wait().unwrap();
    wait_for("all processes are gone", || family.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists()));
    wait_for("all namespaces are gone", || socket.links().unwrap().len() == 1);
    assert_eq!(fs::read_to_string("/proc/self/mountinfo").unwrap(), mounts_before);
}

/// Makes a veth pair from here into a node.
fn tie(here: &mut Socket, node: &Netns, number: u32) {
    let name = |side: &str| format!("{side}{number}").parse().unwrap();
    let peer = Peer { name: name("tie"), mac: None, mtu: None, netns: Some(node.as_fd()) };
    here.add_link(&NewLink::new(name("end"), LinkKind::Veth(peer))).unwrap();
}

#[test]
fn a_signal_ends_it_cleanly() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut outer =
            Command::new(env!("CARGO_BIN_EXE_oke-sandbox")).arg("up").stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(outer.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(lines.by_ref().filter(|line| line.contains("look inside")).count_to(2), "it did not start");
        kill(Pid::from_raw(outer.id().try_into().unwrap()), signal).unwrap();
        wait_for("it ends", || outer.try_wait().unwrap().is_some());
        assert_eq!(outer.wait().unwrap().code(), Some(0), "{signal}");
    }
}

/// As an unprivileged user. Where that user does not exist here, the tests themselves run in an unprivileged user's
/// namespace already, and the program runs in that as it is.
#[test]
fn no_root_is_needed() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    // The build folder may be closed to others.
    let program = folder.path().join("oke-sandbox");
    sandbox::copy_program(Path::new(env!("CARGO_BIN_EXE_oke-sandbox")), &program).unwrap();
    let mut command = Command::new(&program);
    if user_exists(NOBODY) {
        command.uid(NOBODY).gid(NOBODY);
    }
    let script = "getent ahostsv4 node-b.sandbox.internal && ip route add 10.99.0.0/16 dev lo && echo worked";
    let output = command.current_dir("/").args(["up", "--", "sh", "-c", script]).output().unwrap();
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.ends_with("worked\n"), "{text}\n{errors}");
}

#[test]
fn the_sandbox_exits_with_the_programs_code() {
    let status = Command::new(env!("CARGO_BIN_EXE_oke-sandbox"))
        .args(["up", "--on", "node-b", "--", "sh", "-c", "test $(cat /etc/hostname) = node-b && exit 42"])
        .stdout(Stdio::null())
        .status();
    assert_eq!(status.unwrap().code(), Some(42));
}

trait CountTo {
    fn count_to(self, wanted: usize) -> bool;
}

impl<I: Iterator> CountTo for I {
    /// Whether there are that many, without waiting for more.
    fn count_to(self, wanted: usize) -> bool {
        self.take(wanted).count() == wanted
    }
}

fn user_exists(user: u32) -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap();
    map.lines().any(|line| {
        let numbers: Vec<u64> = line.split_whitespace().filter_map(|number| number.parse().ok()).collect();
        matches!(numbers.as_slice(), [first, _, count] if (*first..first + count).contains(&u64::from(user)))
    })
}

fn processes() -> Vec<u32> {
    fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()
}

/// A process's descendants.
fn descendants(of: u32) -> BTreeSet<u32> {
    let all = processes();
    let mut found = BTreeSet::from([of]);
    loop {
        let before = found.len();
        found.extend(
            all.iter()
                .filter(|pid| parent(**pid).is_some_and(|parent| found.contains(&parent)))
                .copied()
                .collect::<Vec<_>>(),
        );
        if found.len() == before {
            found.remove(&of);
            return found;
        }
    }
}
