//! A node is uninstalled as an operator does it: the agent's DaemonSet deleted, `manifests/uninstall` applied. Under
//! exactly the privileges of that manifest the node becomes what it was before, and each of them is needed.

use std::fs;
use std::ops::Deref;
use std::os::unix::fs::chown;

use installer::{PolicyMark, PolicySetting, note_policy_settings};
use ipam::BootId;
use sandbox::{Container, Runtime};
use serde_json::json;

use super::node::World;
use crate::becomes_true;

/// Our state and what resembles it, with the addresses and mode of each file.
const FILES: &str = "find /opt/cni /etc/cni /run/vcn-native /var/lib/vcn-native \
                     -type f,l -printf '%p %m %U %l\\n' -exec sh -c 'test -L {} || sha256sum {}' ';' 2>/dev/null | sort";

/// The host's network. That an address was probed shows by itself, and that a link was up once can never be undone.
const KERNEL: &str = "(ip -details link show; ip addr show) | sed 's/ tentative / /; s/qdisc noop /qdisc noqueue /'; \
                      ip -4 route show table all; ip -6 route show table all; \
                      ip -4 rule; ip -6 rule; ip neigh show proxy; nft --terse list ruleset; \
                      for key in ipv4/ip_forward ipv6/conf/all/forwarding ipv4/conf/ens3/rp_filter \
                      ipv4/conf/ens5/rp_filter ipv4/neigh/ens5/proxy_delay; do cat /proc/sys/net/$key; done";

const FOREIGN: &str = "another plugin of that name";

/// A node, and how it was before the agent came.
struct Before {
    world: World,
    files: String,
    kernel: String,
}

impl Deref for Before {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl Before {
    /// With a plugin of our name that another user owns, and kernel state of another program.
    fn new() -> Self {
        let world = World::new();
        let write = || {
            fs::create_dir_all("/opt/cni/bin").unwrap();
            fs::write("/opt/cni/bin/vcn-native", FOREIGN).unwrap();
            chown("/opt/cni/bin/vcn-native", Some(1000), Some(1000)).unwrap();
        };
        world.node.run(write).unwrap();
        world.sh("ip rule add pref 4242 from 192.0.2.1 lookup 4242; nft add table inet foreign");
        let mut before = Self { world, files: String::new(), kernel: String::new() };
        before.settles();
        (before.files, before.kernel) = before.looks();
        before
    }

    /// The kernel takes note of a carrier, and has an address ready, some time after.
    fn settles(&self) {
        let settled = || {
            let links = self.sh("ip -o link show up | grep -v LOOPBACK");
            let (addresses, routes) = (self.sh("ip -o -6 addr show scope link"), self.sh("ip -6 route show table all"));
            links.lines().all(|link| {
                let name = link.split([' ', '@', ':']).find(|word| word.chars().any(char::is_alphabetic)).unwrap();
                let address = addresses.lines().find(|line| line.contains(&format!(" {name} ")));
                let own = address.and_then(|line| line.split_whitespace().find(|word| word.starts_with("fe80::")));
                let own = own.map_or("none", |address| address.split('/').next().unwrap());
                let signs = [
                    format!("local {own} dev {name} "),
                    format!("ff00::/8 dev {name} "),
                    format!("fe80::/64 dev {name} "),
                ];
                link.contains("state UP") && signs.iter().all(|sign| routes.contains(sign))
            }) && !addresses.contains("tentative")
        };
        assert!(becomes_true(settled), "the links never settled: {:?}", self.looks());
    }

    fn looks(&self) -> (String, String) {
        (self.sh(FILES), self.sh(KERNEL))
    }

    /// Both to the byte, for as little as differs.
    fn assert_as_before(&self, text: &str) {
        let (files, kernel) = self.looks();
        for (now, before) in [(&files, &self.files), (&kernel, &self.kernel)] {
            let more: Vec<_> = now.lines().filter(|line| !before.lines().any(|other| other == *line)).collect();
            let less: Vec<_> = before.lines().filter(|line| !now.lines().any(|other| other == *line)).collect();
            assert!(now == before, "more: {more:#?}\nless: {less:#?}\n{text}");
        }
    }

    /// The node has our network, and the agent is gone.
    fn installed(&self) {
        self.ready(&Container::node_agent().unwrap()).stop().unwrap();
    }
}

#[test]
fn a_node_is_what_it_was_before_the_agent_came() {
    let world = Before::new();
    world.installed();
    assert_ne!(world.looks(), (world.files.clone(), world.kernel.clone()), "there is something to uninstall");
    let (code, text) = world.run(&Container::uninstaller().unwrap());
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("status: removed"), "{text}");
    world.assert_as_before(&text);
    assert_eq!(world.run(&Container::uninstaller().unwrap()).0, 0, "a pod that is restarted does it again");
}

#[test]
fn uninstall_is_refused_while_agent_or_pod_exists() {
    let world = Before::new();
    let uninstaller = Container::uninstaller().unwrap();
    let agent = world.ready(&Container::node_agent().unwrap());
    let (code, text) = world.run(&uninstaller);
    assert!(code == 75 && text.contains("the node agent runs"), "{text}");
    let pod = world.node.add_pod("pod").unwrap();
    let attachment = Runtime::of(&world.node).unwrap().add(&pod).unwrap();
    agent.stop().unwrap();
    world.settles();
    let before = world.looks();
    let (code, text) = world.run(&uninstaller);
    assert!(code == 75 && text.contains("1 attachment(s) of this boot hold addresses"), "{text}");
    assert_eq!(world.looks(), before);
    Runtime::of(&world.node).unwrap().del(&pod, &attachment).unwrap();
    let (code, text) = world.run(&uninstaller);
    assert_eq!(code, 0, "{text}");
    world.assert_as_before(&text);
}

#[test]
fn forced_uninstall_removes_pod_network_and_restores_the_node() {
    let world = Before::new();
    world.installed();
    let pod = world.node.add_pod("pod").unwrap();
    Runtime::of(&world.node).unwrap().add(&pod).unwrap();
    let forced =
        Container::uninstaller().unwrap().running(["/usr/local/bin/oke-cni-installer", "uninstall", "--force"]);
    let (code, text) = world.run(&forced);
    assert_eq!(code, 0, "{text}");
    world.assert_as_before(&text);
}

#[test]
fn each_capability_is_needed() {
    let manifest = Container::uninstaller().unwrap();
    for capability in manifest.capabilities() {
        let world = Before::new();
        world.installed();
        let (code, text) = world.run(&manifest.clone().without_capability(capability));
        let complaint = match capability.as_str() {
            "NET_ADMIN" => "Operation not permitted",
            "CHOWN" => "setting its owner failed",
            other => unreachable!("{other} is in the manifest, and no case shows what needs it"),
        };
        assert!(code == 1 && text.contains(complaint), "without {capability}: {text}");
        let (code, text) = world.run(&manifest);
        assert_eq!(code, 0, "what was not done is done by the next: {text}");
        world.assert_as_before(&text);
    }
}

/// As if a policy had set them to what they are: they are the machine's, and must not change.
fn note_shared_settings() {
    let huge_pages = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap();
    let swappiness = fs::read_to_string("/proc/sys/vm/swappiness").unwrap();
    let watches = fs::read_to_string("/proc/sys/fs/inotify/max_user_watches").unwrap();
    let settings = [
        ("vm/swappiness", swappiness.trim()),
        ("fs/inotify/max_user_watches", watches.trim()),
        ("transparent_hugepage/enabled", huge_pages.split(['[', ']']).nth(1).unwrap()),
    ];
    let settings = settings.map(|(key, value)| PolicySetting {
        key: key.to_owned(),
        before: value.to_owned(),
        set: value.to_owned(),
        mark: PolicyMark::default(),
    });
    note_policy_settings("/var/lib/vcn-native".as_ref(), &BootId::current().unwrap(), &settings).unwrap();
}

/// As if a policy had a file that another program removed: nothing is restored in the machine's own /etc.
fn note_file() {
    let state = json!({ "sha256": "0".repeat(64), "mode": 0o644 });
    let file = json!({ "original": "absent", "applied": state, "policy": "u" });
    let record = json!({ "version": 1, "cluster": "c", "files": { "/etc/sysctl.d/oke-node-manager-test.conf": file } });
    fs::create_dir_all("/var/lib/vcn-native/files").unwrap();
    fs::write("/var/lib/vcn-native/files/record.json", record.to_string()).unwrap();
}

#[test]
fn each_volume_is_needed() {
    let manifest = Container::uninstaller().unwrap();
    for volume in manifest.volumes() {
        let world = Before::new();
        world.installed();
        let pod = world.node.add_pod("pod").unwrap();
        let attachment = Runtime::of(&world.node).unwrap().add(&pod).unwrap();
        if !volume.host.starts_with("/run") {
            Runtime::of(&world.node).unwrap().del(&pod, &attachment).unwrap();
        }
        world.node.run(note_shared_settings).unwrap();
        world.node.run(note_file).unwrap();
        let (code, text) = world.run(&manifest.clone().without_volume(&volume.host));
        let is_left = |key: &str| text.contains(&format!("setting {key}: its folder is not mounted here"));
        let (files, kernel) = world.looks();
        match volume.host.to_str().unwrap() {
            // Without it only the pod's link shows that it exists.
            "/run/vcn-native" => assert!(code == 75 && !text.contains("hold addresses"), "{text}"),
            "/proc/sys/net" => assert_ne!(kernel, world.kernel, "{code}: {text}"),
            "/proc/sys/vm" => assert!(is_left("vm/swappiness"), "{text}"),
            "/proc/sys/fs/inotify" => assert!(is_left("fs/inotify/max_user_watches"), "{text}"),
            "/sys/kernel/mm" => assert!(is_left("transparent_hugepage/enabled"), "{text}"),
            "/etc" => assert!(code == 1 && text.contains("/etc of the host is not mounted"), "{text}"),
            "/opt/cni/bin" | "/etc/cni/net.d" | "/var/lib/vcn-native" => assert_ne!(files, world.files, "{text}"),
            other => unreachable!("{other} is in the manifest, and no case shows what needs it"),
        }
    }
}
