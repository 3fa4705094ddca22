//! Nothing outlives a sandbox, and no root is needed.

use std::fs;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::fixture::wait_for;
use netlink::{LinkKind, Netns, NewLink, Peer, Socket};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const NOBODY: u32 = 65534;
const PROGRAM: &str = env!("CARGO_BIN_EXE_oke-sandbox");

/// `oke-sandbox cluster`, once its VCN is up.
fn start(program: &Path, user: Option<u32>, folder: &Path) -> Child {
    let mut command = Command::new(program);
    as_user(&mut command, user);
    let outer = command.current_dir("/").arg("cluster").arg(folder).spawn().unwrap();
    wait_for("the VCN is up", || folder.join("ready").exists());
    outer
}

fn as_user(command: &mut Command, user: Option<u32>) {
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
}

/// A namespace is gone when the kernel took down a link that we put there: the link's other end, which is here, vanishes.
#[test]
fn kill_9_leaves_no_namespace_or_link() {
    let here = Netns::create().unwrap();
    let mut socket = Socket::open_in(&here).unwrap();
    let mounts_before = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut outer = start(PROGRAM.as_ref(), None, folder.path());
    for (number, node) in ["control-plane", "node-a", "node-b"].iter().enumerate() {
        let enter = fs::read_to_string(folder.path().join(node).join("enter")).unwrap();
        let (_, rest) = enter.split_once("--net=").unwrap();
        tie(&mut socket, &Netns::open(rest.split(' ').next().unwrap().as_ref()).unwrap(), number);
    }
    assert_eq!(socket.links().unwrap().len(), 4, "three nodes, each tied to here");
    let mut inside = Command::new(folder.path().join("node-a/enter"));
    let mut inside = inside.args(["sh", "-c", "echo; sleep 1000"]).stdout(Stdio::piped()).spawn().unwrap();
    inside.stdout.take().unwrap().read_exact(&mut [0]).unwrap();

    kill(Pid::from_raw(outer.id().try_into().unwrap()), Signal::SIGKILL).unwrap();
    outer.wait().unwrap();
    wait_for("the program inside ends", || inside.try_wait().unwrap().is_some());
    wait_for("all namespaces are gone", || socket.links().unwrap().len() == 1);
    assert_eq!(fs::read_to_string("/proc/self/mountinfo").unwrap(), mounts_before);
}

/// Makes a veth pair from here into a node.
fn tie(here: &mut Socket, node: &Netns, number: usize) {
    let name = |side: &str| format!("{side}{number}").parse().unwrap();
    let peer = Peer { name: name("tie"), mac: None, mtu: None, netns: Some(node.as_fd()) };
    here.add_link(&NewLink::new(name("end"), LinkKind::Veth(peer))).unwrap();
}

#[test]
fn signal_ends_the_sandbox_cleanly() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let folder = tempfile::tempdir().unwrap();
        let mut outer = start(PROGRAM.as_ref(), None, folder.path());
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
    let (program, cluster) = (folder.path().join("oke-sandbox"), folder.path().join("cluster"));
    sandbox::copy_program(PROGRAM.as_ref(), &program).unwrap();
    fs::create_dir(&cluster).unwrap();
    let user = user_exists(NOBODY).then_some(NOBODY);
    user.iter().for_each(|user| std::os::unix::fs::chown(&cluster, Some(*user), Some(*user)).unwrap());
    let mut outer = start(&program, user, &cluster);
    let mut inside = Command::new(cluster.join("node-a/enter"));
    as_user(&mut inside, user);
    let script = "getent ahostsv4 node-b.sandbox.internal && ip route add 10.99.0.0/16 dev lo && echo worked";
    let output = inside.current_dir("/").args(["sh", "-c", script]).output().unwrap();
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.ends_with("worked\n"), "{text}\n{errors}");
    outer.kill().unwrap();
    outer.wait().unwrap();
}

fn user_exists(user: u32) -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap();
    map.lines().any(|line| {
        let numbers: Vec<u64> = line.split_whitespace().filter_map(|number| number.parse().ok()).collect();
        matches!(numbers.as_slice(), [first, _, count] if (*first..first + count).contains(&u64::from(user)))
    })
}
