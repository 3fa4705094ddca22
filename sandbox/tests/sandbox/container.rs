//! A program in a container can do what its manifest allows, and nothing else: shown by a shell in the node agent's container.
//! Code that is called in it is in no other.

use std::process::Output;
use std::sync::Arc;

use crate::fixture::two_nodes;
use sandbox::{Container, Image, Node, Vcn};

struct Cell {
    _vcn: Vcn,
    node: Arc<Node>,
}

impl Cell {
    fn new() -> Self {
        let vcn = two_nodes();
        let node = vcn.node("node-a").unwrap();
        Self { _vcn: vcn, node }
    }

    fn run(&self, container: Container, script: &str) -> Output {
        let container = container.running(["/bin/sh", "-c", script]);
        self.node.container(&container, &image()).unwrap().env("PATH", "/bin").output().unwrap()
    }

    /// Calls code in a container.
    fn call<T: Send>(&self, container: &Container, work: impl FnOnce() -> T + Send) -> T {
        self.node.run(|| container.run(&image(), work)).unwrap().unwrap()
    }

    /// What a script prints that must succeed.
    fn says(&self, script: &str) -> String {
        let output = self.run(Container::node_agent().unwrap(), script);
        assert!(output.status.success(), "{script}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// What a script complains of that must fail.
    fn is_refused(&self, script: &str) -> String {
        let output = self.run(Container::node_agent().unwrap(), script);
        assert!(!output.status.success(), "{script}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }
}

fn image() -> Image {
    let mut image = Image::default();
    for program in ["sh", "ls", "cat", "touch", "mount", "unshare", "nsenter", "mknod", "chroot", "ip", "sysctl"] {
        let places = ["/bin", "/usr/bin", "/sbin", "/usr/sbin"].map(|place| format!("{place}/{program}"));
        let place = places.iter().find(|place| std::fs::exists(place).unwrap());
        image = image.file(format!("/bin/{program}"), place.unwrap_or_else(|| panic!("no {program}")));
    }
    image
}

#[test]
fn container_has_exactly_the_capabilities_of_the_manifest() {
    let cell = Cell::new();
    let status = cell.says("cat /proc/self/status");
    let value = |key: &str| {
        let line = status.lines().find(|line| line.starts_with(key)).unwrap_or_else(|| panic!("no {key}: {status}"));
        line.split_once(':').unwrap().1.trim().to_owned()
    };
    // NET_ADMIN is 12, NET_RAW is 13.
    for set in ["CapPrm", "CapEff", "CapBnd"] {
        assert_eq!(u64::from_str_radix(&value(set), 16).unwrap(), 0b11 << 12, "{set}");
    }
    for set in ["CapInh", "CapAmb"] {
        assert_eq!(u64::from_str_radix(&value(set), 16).unwrap(), 0, "{set}");
    }
    assert_eq!(value("NoNewPrivs"), "1");
    if std::fs::exists("/proc/sys/kernel/seccomp").unwrap() {
        assert_eq!(value("Seccomp"), "2", "filtered");
    }
}

#[test]
fn container_sees_volumes_of_manifest_and_no_other_node_files() {
    let cell = Cell::new();
    cell.node.run(|| std::fs::write("/run/secret", "").unwrap()).unwrap();
    cell.node.run(|| std::fs::write("/etc/cni/net.d/10-other.conflist", "foreign").unwrap()).unwrap();
    assert_eq!(cell.says("ls /run"), "vcn-native");
    assert_eq!(cell.says("ls /etc /etc/cni"), "/etc:\ncni\n\n/etc/cni:\nnet.d");
    assert_eq!(cell.says("cat /etc/cni/net.d/10-other.conflist"), "foreign");
    assert_eq!(cell.says("ls /host/proc/sys"), "net");
    assert_eq!(cell.says("echo $$"), "1", "a process namespace of its own");
    assert_eq!(cell.says("ls -d /proc/[0-9]*"), "/proc/1", "when the shell looked, ls was not there yet");
}

#[test]
fn only_its_volumes_can_be_written() {
    let cell = Cell::new();
    for place in ["/", "/etc", "/opt", "/run", "/var/lib", "/proc/sys/net/ipv4", "/bin", "/dev", "/host"] {
        let said = cell.is_refused(&format!("touch {place}/new"));
        assert!(said.contains("Read-only") || said.contains("No such file"), "{place}: {said}");
    }
    for volume in ["/opt/cni/bin", "/etc/cni/net.d", "/run/vcn-native", "/var/lib/vcn-native"] {
        cell.says(&format!("touch {volume}/new"));
        assert!(cell.node.run(|| std::fs::exists(format!("{volume}/new")).unwrap()).unwrap(), "{volume}");
    }
}

#[test]
fn kernel_settings_are_writable_through_volume_but_not_through_proc() {
    let cell = Cell::new();
    let setting = "net/ipv4/conf/all/rp_filter";
    let said = cell.is_refused(&format!("echo 2 >/proc/sys/{setting}"));
    assert!(said.contains("Read-only"), "{said}");
    cell.says(&format!("echo 2 >/host/proc/sys/{setting}"));
    let read = |at: String| std::fs::read_to_string(at).unwrap().trim().to_owned();
    assert_eq!(cell.node.run(|| read(format!("/proc/sys/{setting}"))).unwrap(), "2", "the node's own");
    assert_ne!(read(format!("/proc/sys/{setting}")), "2", "and no other");
}

#[test]
fn container_cannot_enter_namespaces_mount_or_create_devices() {
    let cell = Cell::new();
    for script in [
        "unshare --net /bin/sh -c true",
        "unshare --user /bin/sh -c true",
        "nsenter --net=/proc/self/ns/net /bin/sh -c true",
        "mount -t tmpfs none /run/vcn-native",
        "mount -o remount,rw /",
        "mknod /run/vcn-native/disk b 8 0",
        "chroot /run/vcn-native true",
    ] {
        let said = cell.is_refused(script);
        let refused = ["not permitted", "denied", "must be superuser"].iter().any(|word| said.contains(word));
        assert!(refused, "{script}: {said}");
    }
}

#[test]
fn container_can_use_its_capabilities() {
    let cell = Cell::new();
    cell.says("ip rule add pref 4242 from 192.0.2.1 lookup 4242");
    let rules = cell.node.command("ip").args(["rule", "list", "pref", "4242"]).output().unwrap();
    assert!(String::from_utf8(rules.stdout).unwrap().contains("192.0.2.1"));
    let container = Container::node_agent().unwrap().without_capability("NET_ADMIN");
    assert!(!cell.run(container, "ip rule add pref 4243 from 192.0.2.1 lookup 4242").status.success());
}

#[test]
fn a_file_that_the_image_lacks_is_named() {
    let cell = Cell::new();
    let image = Image::of_programs("/no/such/place".as_ref());
    let error = cell.node.container(&Container::node_agent().unwrap(), &image).unwrap_err().to_string();
    assert!(error.contains("/no/such/place/"), "{error}");
}

/// The limits of a process, from its status and mounts.
fn limits(status: &str, mounts: &str) -> Vec<String> {
    let keys = ["Cap", "NoNewPrivs", "Seccomp:", "Uid", "Gid"];
    let privileges = status.lines().filter(|line| keys.iter().any(|key| line.starts_with(key))).map(str::to_owned);
    // Of what, where, how, and the kind of file system; numbers are new each time.
    let mount = |line: &str| {
        let words: Vec<_> = line.split(' ').collect();
        let kind = words.iter().position(|word| *word == "-").unwrap() + 1;
        format!("{} on {} ({}) {}", words[3], words[4], words[5], words[kind])
    };
    privileges.chain(mounts.lines().map(mount)).collect()
}

#[test]
fn called_code_has_the_privileges_and_files_of_a_program() {
    let cell = Cell::new();
    for container in [Container::node_agent().unwrap(), Container::uninstaller().unwrap()] {
        let cat = |file: &str| {
            let output = cell.run(container.clone(), &format!("cat /proc/self/{file}"));
            String::from_utf8(output.stdout).unwrap()
        };
        let program = limits(&cat("status"), &cat("mountinfo"));
        let read = |file: &str| std::fs::read_to_string(format!("/proc/thread-self/{file}")).unwrap();
        let code = cell.call(&container, || limits(&read("status"), &read("mountinfo")));
        assert!(program.len() > 30, "{program:#?}");
        assert_eq!(code, program);
    }
}

#[test]
fn the_calling_thread_stays_outside() {
    let cell = Cell::new();
    let look = || ["status", "mountinfo"].map(|file| std::fs::read_to_string(format!("/proc/thread-self/{file}")));
    let of = |[status, mounts]: [std::io::Result<String>; 2]| limits(&status.unwrap(), &mounts.unwrap());
    cell.node
        .run(|| {
            let outside = of(look());
            let inside = Container::node_agent().unwrap().run(&image(), || of(look())).unwrap();
            assert_ne!(inside, outside);
            assert_eq!(of(look()), outside);
        })
        .unwrap();
}
