//! Disks that are full or read-only, binaries that run while they are replaced, installers side by side.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use crate::node::{INSTALL, Node, PLUGIN, mode, printed};

/// On a thread whose mounts are its own.
fn with_own_mounts(test: impl FnOnce() + Send + 'static) {
    let worker = thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNS).expect("a mount namespace (run as root or by tests/runner)");
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).unwrap();
        test();
    });
    if let Err(panic) = worker.join() {
        std::panic::resume_unwind(panic);
    }
}

fn read_only(at: &Path) {
    mount(Some(at), at, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
    mount(None::<&str>, at, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY, None::<&str>)
        .unwrap();
}

#[test]
fn full_disk_keeps_the_old_binary_and_configuration() {
    with_own_mounts(|| {
        let node = Node::new();
        mount(Some("tmpfs"), &node.path("bin"), Some("tmpfs"), MsFlags::empty(), Some("size=64k")).unwrap();
        assert_eq!(node.run(&INSTALL).0, 0);
        let before = node.snapshot();
        node.executable("source/vcn-native", &format!("{PLUGIN}exit\n#{}", "x".repeat(100_000)));
        let (code, text) = node.run(&INSTALL);
        let expected = "writing failed; free space on that file system";
        assert!(code == 1 && text.contains(expected) && text.contains("[no-space]"), "{text}");
        assert_eq!(node.snapshot(), before, "not even a temporary file is left");
        node.executable("source/vcn-native", &format!("{PLUGIN}exit\n"));
        assert_eq!(node.run(&INSTALL).0, 0);

        fs::write(node.path("bin/foreign"), [0; 100_000]).unwrap_err();
        fs::set_permissions(node.path("bin/vcn-native"), fs::Permissions::from_mode(0o644)).unwrap();
        let (code, text) = node.run(&INSTALL);
        assert!(code == 0 && text.contains("did: chmod 0755 "), "a mode needs no space: {text}");
        assert_eq!(mode(&node.path("bin/vcn-native")), 0o755);
    });
}

#[test]
fn read_only_directories_are_reported_with_the_next_step() {
    with_own_mounts(|| {
        let node = Node::new();
        read_only(&node.path("bin"));
        let (code, text) = node.run(&INSTALL);
        assert!(code == 1 && text.contains("--cni-bin-dir") && text.contains("[read-only]"), "{text}");
        assert!(!node.conflist().exists());

        let node = Node::new();
        fs::create_dir(node.path("lib")).unwrap();
        read_only(&node.path("lib"));
        let (code, text) = node.run(&INSTALL);
        assert!(code == 1 && text.contains("writing the record") && text.contains("[not-recorded]"), "{text}");
        assert_eq!(node.names(), ["bin/vcn-native", "net.d/05-vcn-native.conflist"], "pods get their network");
        let (code, text) = node.run(&INSTALL);
        assert!(code == 1 && !text.contains("did: "), "reported as long as it is so: {text}");
    });
}

#[test]
fn running_binary_is_replaced_and_keeps_running() {
    let node = Node::new();
    sandbox::copy_program(Path::new("/bin/sleep"), &node.path("bin/vcn-native")).unwrap();
    let mut running = Command::new(node.path("bin/vcn-native")).arg("1000").spawn().unwrap();
    let (code, text) = node.run(&INSTALL);
    assert_eq!(code, 0, "{text}");
    assert_eq!(running.try_wait().unwrap(), None);
    running.kill().unwrap();
    running.wait().unwrap();
    assert_eq!(fs::read_to_string(node.path("bin/vcn-native")).unwrap(), PLUGIN);
}

/// Ends a thread, also when an assertion fails.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn two_releases_at_once_leave_one_of_them_whole() {
    let node = Node::new();
    fs::create_dir(node.path("newer")).unwrap();
    let newer = format!("{PLUGIN}exit\n#{}\n", "n".repeat(300_000));
    node.executable("newer/vcn-native", &newer);
    node.run(&INSTALL);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let ends = Done(&done);
        let reader = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let seen = fs::read_to_string(node.path("bin/vcn-native")).unwrap();
                assert!(seen == PLUGIN || seen == newer, "{} bytes", seen.len());
                assert_eq!(mode(&node.path("bin/vcn-native")), 0o755);
            }
        });
        for round in 0..12 {
            let start = |release: &str| {
                let mut command = node.command_of(release, &INSTALL);
                command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
            };
            for child in [start("source"), start("newer"), start("source")] {
                let (code, text) = printed(&child.wait_with_output().unwrap());
                assert_eq!(code, 0, "round {round}: {text}");
            }
            assert_eq!(node.names(), ["bin/vcn-native", "net.d/05-vcn-native.conflist"], "round {round}");
        }
        drop(ends);
        reader.join().unwrap();
    });
}

/// Only directories that exist can be locked.
#[test]
fn first_installers_at_once_create_missing_directories() {
    let directories = ["--cni-bin-dir=/opt/cni/bin/new", "--cni-conf-dir=/etc/cni/net.d/new"];
    for round in 0..12 {
        let node = Node::new();
        let start = |_| {
            let mut command = node.command_of("source", &[&INSTALL[..], &directories].concat());
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        for child in [0; 3].map(start) {
            let (code, text) = printed(&child.wait_with_output().unwrap());
            assert_eq!(code, 0, "round {round}: {text}");
        }
        let found = ["bin/new", "net.d/new"].map(|name| node.entries(name));
        assert_eq!(found, [["vcn-native"], ["05-vcn-native.conflist"]], "round {round}");
    }
}
