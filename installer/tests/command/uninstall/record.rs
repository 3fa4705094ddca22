//! What was there before us comes back although the record is damaged; what a power cut left of our files does not.

use std::fs;

use super::kernel::Host;
use crate::node::{FOREIGN, INSTALL, Node};

#[test]
fn damaged_or_unreadable_record_costs_nothing_that_was_there_before() {
    for unreadable in [false, true] {
        let node = Node::new();
        fs::write(node.conflist(), FOREIGN).unwrap();
        node.executable("bin/vcn-native", "foreign, too");
        let (code, text) = node.run(&INSTALL);
        assert!(code == 0 && text.contains("status: installed"), "{text}");
        let record = node.path("lib/installer.json");
        fs::remove_file(&record).unwrap();
        if unreadable {
            // Even root gets an error when it reads a directory.
            fs::create_dir(&record).unwrap();
        } else {
            fs::write(&record, "{half").unwrap();
        }
        fs::remove_file(node.conflist()).unwrap();
        let (code, text) = node.run(&INSTALL);
        let word = if unreadable { "[not-recorded]" } else { "[record-damaged]" };
        assert!(code == 1 && text.contains(word), "{text}");
        assert!(fs::read_to_string(node.conflist()).unwrap().contains("vcn-native"), "it is repaired: {text}");
        let (code, text) = node.uninstall(&Host::new(), &[]);
        assert_eq!((code, text.contains("note: ")), (0, unreadable), "the damaged one was set aside: {text}");
        assert_eq!(fs::read_to_string(node.conflist()).unwrap(), FOREIGN);
        assert_eq!(fs::read_to_string(node.path("bin/vcn-native")).unwrap(), "foreign, too");
        assert!(node.knows_nothing());
    }
}

/// The record is lost, so nothing else says whose the files were.
#[test]
fn damaged_files_of_ours_are_neither_kept_nor_restored() {
    const OURS: [&str; 3] = ["net.d/05-vcn-native.conflist", "net.d/00-vnic-attach.conflist", "bin/vcn-native"];
    for damage in ["", "\0\0\0\0\0\0\0\0"] {
        for is_repaired in [true, false] {
            let node = Node::installed();
            OURS.iter().for_each(|name| fs::write(node.path(name), damage).unwrap());
            fs::remove_dir_all(node.path("lib")).unwrap();
            // As release 0.2.0 kept them.
            fs::create_dir_all(node.path("lib/before")).unwrap();
            fs::write(node.path("lib/before/0.0.05-vcn-native.conflist"), damage).unwrap();
            fs::write(node.path("lib/before/0.0.vcn-native"), damage).unwrap();
            if is_repaired {
                let (code, text) = node.run(&INSTALL);
                assert!(code == 0 && text.contains("status: installed"), "{text}");
                assert_eq!(node.names(), ["bin/portmap", "bin/vcn-native", "net.d/05-vcn-native.conflist"], "{text}");
            }
            let (code, text) = node.uninstall(&Host::new(), &[]);
            assert!(code == 0 && !text.contains("restore "), "{text}");
            assert_eq!(node.names(), ["bin/portmap"], "{text}");
            assert!(node.knows_nothing());
        }
    }
}
