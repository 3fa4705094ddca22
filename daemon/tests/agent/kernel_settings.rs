//! Kernel settings that every namespace shares, set by node policies through the mounts of the manifest: in a guest, because the
//! machine's own must not change.

use std::fs;
use std::path::Path;

use sandbox::{Container, Image};
use serde_json::json;
use tunables::PolicyState;

use crate::node::Node;
use crate::node_policies::{Leader, document, items};
use crate::running::{Agent, wait_for};

/// The folders that the manifest of tunables mounts.
const FOLDERS: [&str; 2] = ["/proc/sys/vm", "/proc/sys/fs/inotify"];
const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage";

const KEYS: [&str; 4] = ["vm/max_map_count", "vm/dirty_bytes", "vm/dirty_ratio", "fs/inotify/max_user_watches"];

fn values() -> [String; 4] {
    KEYS.map(|key| fs::read_to_string(format!("/proc/sys/{key}")).unwrap().trim().to_owned())
}

fn with_mounts(container: Container, folders: &[&str]) -> Container {
    let mount = |container: Container, folder: &&str| {
        container.with_volume(Path::new(folder), Path::new(&format!("/host{folder}")))
    };
    folders.iter().fold(container, mount)
}

fn agent(leader: &Leader<'_>, folders: &[&str], more: &[&str]) -> Agent {
    leader.start(with_mounts(leader.node.container(), folders), more)
}

/// In steps, because each test would start an agent and a kernel of its own.
#[test]
#[ignore = "needs kernel settings that it may change: run by tests/uml/run"]
fn settings_of_the_whole_node_are_reported_applied_kept_and_undone() {
    let node = Node::new();
    let leader = Leader::new(&node);
    let first = agent(&leader, &FOLDERS, &[]);
    let before = values();
    let [maps, _, ratio, watches] = before.clone();
    let requested = [
        ("vm.max_map_count", "262144"),
        ("vm.dirty_bytes", "33554432"),
        ("fs.inotify.max_user_watches", "99999"),
        ("fs.file-max", "999999"),
        ("net.core.no_such_key", "1"),
    ];
    let answer = leader.send(&first, &document("a", "report", &requested));
    assert_eq!(
        items(&answer),
        [
            "net.core.no_such_key Refused  1".to_owned(),
            "fs.file-max NotGranted  999999".to_owned(),
            format!("fs.inotify.max_user_watches Drifted {watches} 99999"),
            "vm.dirty_bytes Drifted 0 33554432".to_owned(),
            format!("vm.max_map_count Drifted {maps} 262144"),
        ]
    );
    assert_eq!(values(), before);

    let answer = leader.send(&first, &document("b", "apply", &requested));
    assert_eq!((items(&answer).len(), answer.in_sync), (2, 3), "{answer:?}");
    let applied = ["262144", "33554432", "0", "99999"];
    assert_eq!(values(), applied);
    leader.wait_confirmed(&first);
    // Killed, and after a reboot: the values are the only evidence.
    drop(first);
    assert_eq!(values(), applied);
    fs::write("/proc/sys/vm/max_map_count", &maps).unwrap();
    let second = agent(&leader, &FOLDERS, &[]);
    wait_for("the value", || values() == applied, || second.log());

    // The kernel refuses 0 of an amount in bytes.
    leader.send(&second, &document("c", "", &[]));
    assert_eq!((values(), ratio.as_str()), (before.clone(), before[2].as_str()));

    // Without its mounts, the agent cannot restore; the uninstaller has its own.
    leader.send(&second, &document("d", "apply", &requested));
    second.stop();
    assert_eq!(values(), applied);
    let uninstaller = node.placed(Container::uninstaller().unwrap());
    let arguments =
        ["oke-cni-installer", "uninstall", "--force", "--sysctl-root", "/host/proc/sys", "--host-root", "/host"];
    node.inside(|| uninstaller.run(&Image::default(), || installer::run(arguments.map(Into::into))).unwrap());
    assert_eq!(values(), before);
}

#[test]
#[ignore = "needs kernel settings that it may change: run by tests/uml/run"]
fn own_mount_and_key_work_and_a_rounded_value_is_in_sync() {
    let node = Node::new();
    let leader = Leader::new(&node);
    let more = ["--tunable-keys", "fs.pipe-user-pages-soft"];
    let agent = agent(&leader, &["/proc/sys/fs"], &more);
    let read = |key: &str| fs::read_to_string(format!("/proc/sys/fs/{key}")).unwrap().trim().to_owned();
    let before = (read("pipe-max-size"), read("pipe-user-pages-soft"));
    let requested = [("fs.pipe-max-size", "1500000"), ("fs.pipe-user-pages-soft", "20000")];
    let answer = leader.send(&agent, &document("a", "apply", &requested));
    assert_eq!((items(&answer), answer.in_sync), (Vec::new(), 2));
    assert_eq!((read("pipe-max-size").as_str(), read("pipe-user-pages-soft").as_str()), ("2097152", "20000"));
    let answer = leader.send(&agent, &document("b", "apply", &requested));
    assert_eq!((answer.in_sync, agent.events("policy.set").len()), (2, 2), "a rounded value has not drifted");
    leader.send(&agent, &document("c", "", &[]));
    assert_eq!((read("pipe-max-size"), read("pipe-user-pages-soft")), before);
}

#[test]
#[ignore = "needs transparent huge pages that it may change: run by tests/qemu/run"]
fn huge_pages_are_reported_applied_and_undone() {
    let node = Node::new();
    let leader = Leader::new(&node);
    let agent = agent(&leader, &[HUGE_PAGES], &[]);
    let text = || fs::read_to_string(format!("{HUGE_PAGES}/enabled")).unwrap();
    let before = text();
    let of = |revision: &str, mode: &str| {
        let mut sent = document(revision, mode, &[]);
        sent["hugePages"] = json!([{ "enabled": "never", "policy": 0 }]);
        sent
    };
    let current = before.split(['[', ']']).nth(1).unwrap();
    let answer = leader.send(&agent, &of("a", "report"));
    assert_eq!(items(&answer), [format!("transparentHugePages.enabled Drifted {current} never")]);
    assert_eq!(text(), before);
    let answer = leader.send(&agent, &of("b", "apply"));
    assert_eq!((answer.policies[0].state, answer.in_sync), (PolicyState::Applying, 1), "{answer:?}");
    assert!(text().contains("[never]"));
    leader.send(&agent, &document("c", "", &[]));
    assert_eq!(text(), before);
}
