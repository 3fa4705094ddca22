//! Our configuration on a node that is given another pod network, or came with an image: it goes when that is sure to help,
//! and until then it is said what it waits for.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::node::{Node, PLUGIN};
use crate::uninstall::kernel::Host;

const OURS: [&str; 2] = ["--node-label", "true"];
const FLANNEL: &str = r#"{"name":"cbr0","cniVersion":"1.0.0","plugins":[{"type":"flannel"}]}"#;
const SOMEBODYS: &str = r#"{ "name":"theirs", "plugins":[{"type":"bridge"}] }"#;

/// A node that was ours, without pods.
fn ours() -> Node {
    let node = Node::new();
    let (code, text) = node.run(&[&OURS[..], &["--usable", "--chain="]].concat());
    assert_eq!(code, 0, "{text}");
    node
}

fn flannel(node: &Node) {
    fs::write(node.path("net.d/10-flannel.conflist"), FLANNEL).unwrap();
}

/// What a run says of our configuration, and whether it is there.
fn said(node: &Node, arguments: &[&str]) -> (Option<String>, bool) {
    let (code, text) = node.run(arguments);
    assert_eq!(code, 0, "{text}");
    let about = |line: &&str| line.contains("05-vcn-native.conflist") && !line.starts_with('{');
    (text.lines().find(about).map(str::to_owned), node.conflist().exists())
}

fn left(reason: &str) -> (Option<String>, bool) {
    let what = "note: 05-vcn-native.conflist is what the runtime uses although nothing of ours is to be installed";
    (Some(format!("{what}: {reason} [left-behind]")), true)
}

#[test]
fn it_goes_when_there_is_another_configuration_and_not_sooner() {
    let node = ours();
    let none = "there is no configuration of another pod network that a runtime could use (POD_NETWORK=none says that none is meant)";
    let another = ["--node-label", "false"];
    assert_eq!(said(&node, &another), left(none));
    flannel(&node);
    let (step, there) = said(&node, &[&another[..], &["--dry-run"]].concat());
    let away = "remove /etc/cni/net.d/05-vcn-native.conflist: the pod network is another (node-label)";
    assert_eq!((step, there), (Some(format!("would: {away}")), true));
    assert_eq!(said(&node, &another), (Some(format!("did: {away}")), false));
    assert_eq!(node.names(), ["bin/vcn-native", "net.d/10-flannel.conflist"]);
    assert_eq!(said(&node, &another), (None, false));
    // It is not remembered as ours either: what stops a first installation stops it here.
    let (_, text) = node.run(&[&OURS[..], &["--usable", "--oke-daemonset", "present"]].concat());
    assert!(text.contains("leave alone (oke-daemonset)"), "{text}");
    fs::remove_file(node.path("net.d/10-flannel.conflist")).unwrap();
    assert!(said(&node, &[&OURS[..], &["--usable", "--chain="]].concat()).1, "and it comes again");
}

/// Remembered, it would be ours to heal: what stops a first installation did not stop it.
#[test]
fn what_somebody_took_away_is_remembered_no_more_once_another_network_is_meant() {
    let forgotten = (Some("did: delete 05-vcn-native.conflist from the record".to_owned()), false);
    let another = ["--node-label", "false"];
    for somebodys in [false, true] {
        let node = ours();
        fs::remove_file(node.conflist()).unwrap();
        if somebodys {
            fs::write(node.conflist(), SOMEBODYS).unwrap();
        }
        assert_eq!(said(&node, &[]).0, None, "of silence nothing is concluded");
        assert_eq!(said(&node, &another), (forgotten.0.clone(), somebodys));
        assert_eq!(said(&node, &another), (None, somebodys));
        let (_, text) = node.run(&[&OURS[..], &["--usable", "--oke-daemonset", "present"]].concat());
        assert!(text.contains("leave alone (oke-daemonset)"), "{text}");
        let (code, text) = node.run(&[&OURS[..], &["--usable", "--chain="]].concat());
        assert!(code == 0 && !text.contains("it was removed"), "nobody undid it: {text}");
    }
}

#[test]
fn where_the_setting_says_none_nothing_is_waited_for_and_what_was_there_before_us_comes_back() {
    let node = Node::new();
    fs::write(node.conflist(), SOMEBODYS).unwrap();
    assert_eq!(node.run(&[&OURS[..], &["--usable"]].concat()).0, 0);
    assert_ne!(fs::read_to_string(node.conflist()).unwrap(), SOMEBODYS);
    let (step, _) = said(&node, &["--pod-network", "none"]);
    assert!(step.is_some_and(|step| step.starts_with("did: remove ") && step.ends_with("another (setting)")));
    assert_eq!(fs::read_to_string(node.conflist()).unwrap(), SOMEBODYS);
    assert_eq!(said(&node, &["--pod-network", "none"]).0, None, "that is not ours");
    let (code, text) = Host::new().inside(|| node.uninstall_on_a_host(&[]));
    assert!(code == 0 && text.contains("status: removed"), "of what is back nobody is asked: {text}");
    assert_eq!((node.names(), node.path("lib").exists()), (vec!["net.d/05-vcn-native.conflist".to_owned()], false));
    assert_eq!(fs::read_to_string(node.conflist()).unwrap(), SOMEBODYS);
}

/// As of a file whose owner the agent may not set.
#[test]
fn failure_to_remove_it_is_reported_as_left_behind() {
    let node = Node::new();
    fs::write(node.conflist(), SOMEBODYS).unwrap();
    assert_eq!(node.run(&[&OURS[..], &["--usable"]].concat()).0, 0);
    let copy = node.path("lib/before").join(&node.entries("lib/before")[0]);
    fs::remove_file(&copy).unwrap();
    nix::unistd::mkfifo(&copy, nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::rename(&copy, copy.with_file_name("1.1.05-vcn-native.conflist")).unwrap();
    fs::set_permissions(node.path("net.d"), fs::Permissions::from_mode(0o555)).unwrap();
    let (code, text) = node.run(&["--pod-network", "none"]);
    let note = "note: 05-vcn-native.conflist is what the runtime uses although nothing of ours is to be installed: ";
    assert!(code == 1 && text.contains(note) && text.contains("[denied]"), "{text}");
    assert!(fs::read_to_string(node.conflist()).unwrap().contains("vcn-native"));
}

#[test]
fn silence_and_doubt_take_nothing_and_in_doubt_what_we_remember_is_kept_up() {
    let node = ours();
    flannel(&node);
    let unsure = left("no signal says for sure that the pod network is another");
    assert_eq!(said(&node, &[]), unsure);
    for arguments in [&["--node-label", "perhaps"], &["--native-pod-network", "present"]] {
        assert_eq!(said(&node, arguments), (None, true), "{arguments:?}");
    }
    let record = fs::read(node.path("lib/installer.json")).unwrap();
    fs::remove_file(node.path("lib/installer.json")).unwrap();
    for arguments in [&["--node-label", "perhaps"], &["--native-pod-network", "present"]] {
        assert_eq!(said(&node, arguments), unsure, "{arguments:?}");
    }
    fs::write(node.path("lib/installer.json"), record).unwrap();
    assert!(!said(&node, &["--native-pod-network", "absent"]).1, "who was asked says that nothing is ours");
}

#[test]
fn a_pod_that_lives_by_it_keeps_it() {
    let node = ours();
    flannel(&node);
    node.allocate();
    let another = ["--node-label", "false"];
    let pods = left("1 attachment(s) of this boot hold addresses (default/web-0)");
    assert_eq!(said(&node, &another), pods);
    fs::remove_dir_all(node.path("run")).unwrap();
    assert!(!said(&node, &another).1, "as after a boot");
}

/// As an image is that was made of a node: nothing but the files of the runtime came along.
#[test]
fn what_came_with_an_image_goes_and_what_is_not_ours_stays() {
    let node = ours();
    fs::remove_dir_all(node.path("lib")).unwrap();
    flannel(&node);
    let absent = ["--native-pod-network", "absent"];
    assert!(!said(&node, &absent).1);
    assert_eq!(fs::read_to_string(node.path("bin/vcn-native")).unwrap(), PLUGIN);
    fs::write(node.conflist(), SOMEBODYS).unwrap();
    assert_eq!(said(&node, &absent), (None, true), "it has our name, and is somebody's");
}

#[test]
fn of_a_link_in_its_place_no_end_is_left() {
    let node = ours();
    flannel(&node);
    fs::rename(node.conflist(), node.path("net.d/real")).unwrap();
    std::os::unix::fs::symlink("real", node.conflist()).unwrap();
    assert!(!said(&node, &["--node-label", "false"]).1);
    assert_eq!(node.entries("net.d"), ["10-flannel.conflist"]);
}

/// As one of before left it that was stopped after the file and before the link.
#[test]
fn a_link_that_leads_nowhere_goes_where_it_is_known_to_have_been_ours() {
    let node = ours();
    flannel(&node);
    fs::remove_file(node.conflist()).unwrap();
    std::os::unix::fs::symlink("real", node.conflist()).unwrap();
    assert!(said(&node, &["--pod-network", "none"]).0.is_some_and(|step| step.starts_with("did: remove ")));
    assert_eq!(node.entries("net.d"), ["10-flannel.conflist"]);
    // What may lead somewhere from where others stand, and what is nobody's we know of, is for a person to look at.
    for (to, ours) in [("/elsewhere/real", true), ("real", false)] {
        let node = self::ours();
        fs::remove_file(node.conflist()).unwrap();
        std::os::unix::fs::symlink(to, node.conflist()).unwrap();
        if !ours {
            fs::remove_dir_all(node.path("lib")).unwrap();
        }
        let (said, _) = said(&node, &["--pod-network", "none"]);
        assert_eq!(said.is_some_and(|said| said.contains("[left-behind]")), ours, "{to}");
        assert!(node.conflist().is_symlink(), "{to}");
    }
}
