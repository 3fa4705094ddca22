//! What was there before us outlives a record that cannot be read.

use std::fs;

use super::kernel::Host;
use crate::node::{Node, PORTMAP};

const THEIRS: &str = r#"{"name":"theirs","plugins":[{"type":"bridge"}]}"#;
const INSTALL: [&str; 3] = ["--node-label", "true", "--usable"];

/// A node on which something of our names was before us.
fn installed_over() -> Node {
    let node = Node::new();
    fs::write(node.conflist(), THEIRS).unwrap();
    node.executable("bin/vcn-native", "theirs, too");
    let (code, text) = node.run(&INSTALL);
    assert!(code == 0 && text.contains("status: installed"), "{text}");
    node
}

fn is_given_back(node: &Node) {
    assert_eq!(fs::read_to_string(node.conflist()).unwrap(), THEIRS);
    assert_eq!(fs::read_to_string(node.path("bin/vcn-native")).unwrap(), "theirs, too");
}

#[test]
fn a_record_that_cannot_be_read_for_a_moment_is_not_replaced_and_the_node_heals_nevertheless() {
    let node = installed_over();
    let record = node.path("lib/installer.json");
    let whole = fs::read(&record).unwrap();
    // As a disk that answers with an error: even root gets one when it reads a directory.
    fs::rename(&record, node.path("lib/kept")).unwrap();
    fs::create_dir(&record).unwrap();
    for changes in [false, true] {
        if changes {
            fs::remove_file(node.conflist()).unwrap();
        }
        let (code, text) = node.run(&INSTALL);
        assert!(code == 1 && text.contains("[unremembered]"), "{text}");
        assert!(fs::read_to_string(node.conflist()).unwrap().contains("vcn-native"), "{text}");
        assert!(record.is_dir(), "{text}");
    }
    fs::remove_dir(&record).unwrap();
    fs::rename(node.path("lib/kept"), &record).unwrap();
    assert_eq!(fs::read(&record).unwrap(), whole);
    assert_eq!(node.run(&INSTALL).0, 0);
    assert_eq!(node.uninstall(&Host::new(), &[]).0, 0);
    is_given_back(&node);
    assert!(node.knows_nothing());
}

#[test]
fn copies_that_no_record_names_are_for_a_person_and_are_never_removed() {
    let node = installed_over();
    fs::write(node.path("lib/installer.json"), "{half").unwrap();
    assert!(node.run(&INSTALL).1.contains("[record-damaged]"));
    let (code, text) = node.run(&INSTALL);
    assert!(code == 0 && text.contains("status: installed"), "{text}");

    let before = node.snapshot();
    let (code, text) = node.uninstall(&Host::new(), &[]);
    assert!(code == 75 && text.contains("/before/") && text.contains("installer.json.damaged"), "{text}");
    assert_eq!(node.snapshot(), before);

    let (code, text) = node.uninstall(&Host::new(), &["--force"]);
    assert!(code == 0 && text.contains("of what was there before us"), "{text}");
    assert!(!node.conflist().exists());
    let mut copies: Vec<String> = fs::read_dir(node.path("lib/before"))
        .unwrap()
        .map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap())
        .collect();
    copies.sort();
    assert_eq!(copies, ["theirs, too", THEIRS]);
    assert!(node.path("lib/installer.json.damaged").exists() && !node.path("lib/installer.json").exists());
}

/// A link is known by the record alone.
#[test]
fn a_record_that_was_set_aside_is_for_a_person_although_there_are_no_copies() {
    let node = Node::new();
    node.executable("bin/portmap", PORTMAP);
    assert_eq!(node.run(&INSTALL).0, 0);
    fs::write(node.path("lib/installer.json.damaged"), "{half").unwrap();
    let (code, text) = node.uninstall(&Host::new(), &[]);
    assert!(code == 75 && text.contains("installer.json.damaged") && !text.contains("/before/"), "{text}");
    assert_eq!(node.uninstall(&Host::new(), &["--force"]).0, 0);
    assert!(node.knows_nothing());
}
