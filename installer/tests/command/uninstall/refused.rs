//! Nothing is removed while pods use our network, or while an agent or installer would install it again.

use std::fs::{self, File};
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sandbox::Container;

use super::kernel::Host;
use crate::node::{Node, printed};

#[test]
fn links_of_pods_and_unreadable_records_refuse_it() {
    let node = Node::installed();
    let host = Host::new();
    host.populate(&node.path("lib"));
    let (code, text) = node.uninstall(&host, &[]);
    assert!(code == 75 && text.contains("links of pods are there (vcn"), "{text}");
    fs::create_dir_all(node.path("run")).unwrap();
    fs::write(node.path("run/allocations.json"), "{").unwrap();
    let (code, text) = node.uninstall(&Host::new(), &[]);
    assert!(code == 75 && text.contains("reading which pods hold addresses"), "{text}");
}

#[test]
fn running_agent_refuses_it() {
    let node = Node::installed();
    fs::create_dir_all(node.path("run")).unwrap();
    let agent = File::create(node.path("run/agent.lock")).unwrap();
    agent.lock().unwrap();
    let before = node.snapshot();
    // Even forced: the agent would install it again within a second.
    for arguments in [&[][..], &["--force"], &["--dry-run"]] {
        let (code, text) = node.uninstall(&Host::new(), arguments);
        assert!(code == 75 && text.contains("the node agent runs and would install everything again"), "{text}");
        assert_eq!(node.snapshot(), before);
    }
    // Closing is not enough: a child that another test has just forked may still have it open.
    agent.unlock().unwrap();
    assert_eq!(node.uninstall(&Host::new(), &[]).0, 0);
}

#[test]
fn another_installer_refuses_it() {
    let node = Node::installed();
    let other = File::open(node.path("bin")).unwrap();
    other.lock().unwrap();
    let before = node.snapshot();
    let (code, text) = node.uninstall(&Host::new(), &["--force"]);
    assert!(code == 75 && text.contains("another installer is at work"), "{text}");
    assert_eq!((node.snapshot(), node.entries("run")), (before, vec![]));
    other.unlock().unwrap();
    assert_eq!(node.uninstall(&Host::new(), &[]).0, 0);
}

#[test]
fn pods_that_start_meanwhile_keep_their_network() {
    let node = Node::installed();
    let host = Host::new();
    let conflist = node.conflist();
    // The first file removed is the configuration; then it is stopped, and a pod comes.
    let strace = ["--trace=unlink", "--inject=unlink:signal=SIGSTOP:when=1"].map(str::to_owned);
    let log = tempfile::tempdir().unwrap();
    let container = node.placed(Container::uninstaller().unwrap());
    let mut command = node.traced_command(container, &strace, &log.path().join("calls"), &["uninstall"]);
    let mut uninstalling = host.inside(|| command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let children = format!("/proc/{0}/task/{0}/children", uninstalling.id());
    let end = Instant::now() + Duration::from_secs(90);
    while conflist.exists() {
        assert!(Instant::now() < end, "the configuration was never removed");
        std::thread::sleep(Duration::from_millis(1));
    }
    node.allocate();
    host.populate(&node.path("lib"));
    let stopped: i32 = fs::read_to_string(children).unwrap().trim().parse().unwrap();
    // Repeated: if strace is slow, it has yet to be stopped.
    while uninstalling.try_wait().unwrap().is_none() {
        let _ = kill(Pid::from_raw(stopped), Signal::SIGCONT);
        std::thread::sleep(Duration::from_millis(5));
    }
    let (code, text) = printed(&uninstalling.wait_with_output().unwrap());
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("pods started meanwhile") && text.contains("[pods]"), "{text}");
    assert_eq!(node.names(), ["bin/portmap", "bin/vcn-native"], "their DEL needs it: {text}");
    let kernel = host.snapshot();
    assert!(kernel.contains("10.0.32.7") && kernel.contains("vcn0123456789ab"), "{kernel}");
    let (code, text) = node.uninstall(&host, &["--force"]);
    assert_eq!(code, 0, "{text}");
}
