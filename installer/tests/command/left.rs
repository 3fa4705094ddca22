//! Our configuration on a node that gets another pod network, or that came with an image. It goes when that is sure to help.
//! Until then the report says what it waits for.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use crate::node::{FLANNEL, FOREIGN, INSTALL, Node, PLUGIN};
use crate::uninstall::kernel::Host;

const ANOTHER: [&str; 2] = ["--signal-node-label", "false"];
const NONE: [&str; 2] = ["--pod-network", "none"];

/// A node that had our pod network, without pods.
fn ours() -> Node {
    let node = Node::new();
    let (code, text) = node.run(&[&INSTALL[..], &["--cni-chain="]].concat());
    assert_eq!(code, 0, "{text}");
    node
}

/// The same, with Flannel's configuration.
fn ours_and_flannel() -> Node {
    let node = ours();
    fs::write(node.path("net.d/10-flannel.conflist"), FLANNEL).unwrap();
    node
}

/// A node where our configuration replaced another program's.
fn installed_over_foreign_plugin() -> Node {
    let node = Node::new();
    fs::write(node.conflist(), FOREIGN).unwrap();
    assert_eq!(node.run(&INSTALL).0, 0);
    assert_ne!(fs::read_to_string(node.conflist()).unwrap(), FOREIGN);
    node
}

/// The report's line about our configuration, and whether the file is there.
fn reported(node: &Node, arguments: &[&str]) -> (Option<String>, bool) {
    let (code, text) = node.run(arguments);
    assert_eq!(code, 0, "{text}");
    let about = |line: &&str| line.contains("05-vcn-native.conflist") && !line.starts_with('{');
    (text.lines().find(about).map(str::to_owned), node.conflist().exists())
}

fn left(reason: &str) -> (Option<String>, bool) {
    let what = "note: 05-vcn-native.conflist is what the runtime uses although our pod network is not to be installed";
    (Some(format!("{what}: {reason} [left-behind]")), true)
}

fn refused_next_to_okes_daemonset(node: &Node) {
    let (_, text) = node.run(&[&INSTALL[..], &["--signal-oke-daemonset", "present"]].concat());
    assert!(text.contains("leave alone (oke-daemonset)"), "it is not recorded as our file: {text}");
}

#[test]
fn leftover_conflist_is_removed_when_another_configuration_exists() {
    let node = ours();
    let none = "there is no configuration of another pod network that a runtime could use (POD_NETWORK=none says that none is meant)";
    assert_eq!(reported(&node, &ANOTHER), left(none));
    fs::write(node.path("net.d/10-flannel.conflist"), FLANNEL).unwrap();
    let removed = "remove /etc/cni/net.d/05-vcn-native.conflist: the pod network is another (node-label)";
    let dry_run = reported(&node, &[&ANOTHER[..], &["--dry-run"]].concat());
    assert_eq!(dry_run, (Some(format!("would: {removed}")), true));
    assert_eq!(reported(&node, &ANOTHER), (Some(format!("did: {removed}")), false));
    assert_eq!(node.names(), ["bin/vcn-native", "net.d/10-flannel.conflist"]);
    assert_eq!(reported(&node, &ANOTHER), (None, false));
    refused_next_to_okes_daemonset(&node);
    fs::remove_file(node.path("net.d/10-flannel.conflist")).unwrap();
    assert!(reported(&node, &[&INSTALL[..], &["--cni-chain="]].concat()).1, "and it comes again");
}

#[test]
fn record_of_removed_conflist_is_deleted_on_another_network() {
    for foreign in [false, true] {
        let node = ours();
        fs::remove_file(node.conflist()).unwrap();
        if foreign {
            fs::write(node.conflist(), FOREIGN).unwrap();
        }
        assert_eq!(reported(&node, &[]).0, None, "silence says nothing");
        let forgotten = "did: delete 05-vcn-native.conflist from the record".to_owned();
        assert_eq!(reported(&node, &ANOTHER), (Some(forgotten), foreign));
        assert_eq!(reported(&node, &ANOTHER), (None, foreign));
        refused_next_to_okes_daemonset(&node);
        let (code, text) = node.run(&[&INSTALL[..], &["--cni-chain="]].concat());
        assert!(code == 0 && !text.contains("it was removed"), "{text}");
    }
}

#[test]
fn setting_none_restores_what_was_there_before_at_once() {
    let node = installed_over_foreign_plugin();
    let (step, _) = reported(&node, &NONE);
    assert!(step.is_some_and(|step| step.starts_with("did: remove ") && step.ends_with("another (setting)")));
    assert_eq!(fs::read_to_string(node.conflist()).unwrap(), FOREIGN);
    assert_eq!((reported(&node, &NONE).0, node.entries("lib/before")), (None, vec![]));
    let (code, text) = Host::new().inside(|| node.uninstall_on_a_host(&[]));
    assert!(code == 0 && text.contains("status: removed"), "{text}");
    assert_eq!((node.names(), node.path("lib").exists()), (vec!["net.d/05-vcn-native.conflist".to_owned()], false));
    assert_eq!(fs::read_to_string(node.conflist()).unwrap(), FOREIGN);

    // Another program removed our file first: the earlier one waits for the uninstallation.
    let node = installed_over_foreign_plugin();
    fs::remove_file(node.conflist()).unwrap();
    reported(&node, &NONE);
    assert_eq!(Host::new().inside(|| node.uninstall_on_a_host(&[])).0, 0);
    assert_eq!(fs::read_to_string(node.conflist()).unwrap(), FOREIGN);
}

#[test]
fn leftover_conflist_that_cannot_be_removed_is_reported() {
    let node = installed_over_foreign_plugin();
    fs::set_permissions(node.path("net.d"), fs::Permissions::from_mode(0o555)).unwrap();
    let (code, text) = node.run(&NONE);
    let note =
        "note: 05-vcn-native.conflist is what the runtime uses although our pod network is not to be installed: ";
    assert!(code == 1 && text.contains(note) && text.contains("[denied]"), "{text}");
    assert!(fs::read_to_string(node.conflist()).unwrap().contains("vcn-native"));
}

#[test]
fn silence_and_doubt_remove_nothing() {
    let node = ours_and_flannel();
    let unsure = left("no signal says for sure that the pod network is another");
    let doubts = [["--signal-node-label", "perhaps"], ["--signal-native-pod-network", "present"]];
    assert_eq!(reported(&node, &[]), unsure);
    doubts.iter().for_each(|doubt| assert_eq!(reported(&node, doubt), (None, true), "it is maintained: {doubt:?}"));
    let record = fs::read(node.path("lib/installer.json")).unwrap();
    fs::remove_file(node.path("lib/installer.json")).unwrap();
    doubts.iter().for_each(|doubt| assert_eq!(reported(&node, doubt), unsure, "{doubt:?}"));
    fs::write(node.path("lib/installer.json"), record).unwrap();
    assert!(!reported(&node, &["--signal-native-pod-network", "absent"]).1, "that is an answer");
}

#[test]
fn leftover_conflist_is_kept_while_a_pod_uses_it() {
    let node = ours_and_flannel();
    node.allocate();
    for signals in [&ANOTHER[..], &NONE] {
        assert_eq!(reported(&node, signals), left("1 attachment(s) of this boot hold addresses (default/web-0)"));
    }
    fs::remove_dir_all(node.path("run")).unwrap();
    assert!(!reported(&node, &ANOTHER).1, "as after a boot");
}

#[test]
fn unrecorded_own_conflist_is_removed_and_foreign_one_is_kept() {
    let node = ours_and_flannel();
    fs::remove_dir_all(node.path("lib")).unwrap();
    let absent = ["--signal-native-pod-network", "absent"];
    assert!(!reported(&node, &absent).1);
    assert_eq!(fs::read_to_string(node.path("bin/vcn-native")).unwrap(), PLUGIN);
    fs::write(node.conflist(), FOREIGN).unwrap();
    assert_eq!(reported(&node, &absent), (None, true));
}

#[test]
fn link_in_place_of_our_conflist_is_reported_and_stays() {
    for to in ["10-flannel.conflist", "nothing", "/elsewhere/real"] {
        let node = ours_and_flannel();
        fs::remove_file(node.conflist()).unwrap();
        symlink(to, node.conflist()).unwrap();
        let (line, _) = reported(&node, &NONE);
        let reason =
            format!("another program replaced it: it is a symbolic link to {to}; replace it by a regular file");
        assert!(line.is_some_and(|line| line.ends_with(&format!("{reason} [left-behind]"))), "{to}");
        assert!(node.conflist().is_symlink());
    }
}
