//! What was there before us comes back although the record is damaged.

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
