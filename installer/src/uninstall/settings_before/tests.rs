//! Noted once, set again only where nobody else has a hand in it.

use std::fs;
use std::path::PathBuf;

use ipam::BootId;
use serde_json::Value;
use tempfile::TempDir;

use super::*;
use crate::{SettingChange, note_settings};

/// A data directory and something that looks like /proc/sys.
struct Node {
    directory: TempDir,
}

impl Node {
    fn new() -> Self {
        let node = Self { directory: tempfile::tempdir().unwrap() };
        fs::create_dir_all(node.path("sys/net/ipv4")).unwrap();
        node.set("2");
        node
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn set(&self, value: &str) {
        fs::write(self.path("sys/net/ipv4/ip_forward"), format!("{value}\n")).unwrap();
    }

    fn note(&self, boot: &BootId, before: &str, set: &str) {
        let key = "net/ipv4/ip_forward".to_owned();
        let change = SettingChange { key, before: before.to_owned(), set: set.to_owned() };
        note_settings(&self.path("lib"), boot, &[change]).unwrap();
    }

    /// The value after restoring, and what was left.
    fn restored(&self) -> (String, Vec<String>) {
        self.restored_beside(&Others::default())
    }

    fn restored_beside(&self, others: &Others) -> (String, Vec<String>) {
        let mut removal = Removal { applied: true, ..Removal::default() };
        restore(&self.path("lib"), &self.path("sys"), others, &mut removal);
        assert!(removal.failures.is_empty(), "{removal}");
        (fs::read_to_string(self.path("sys/net/ipv4/ip_forward")).unwrap().trim().to_owned(), removal.left)
    }
}

#[test]
fn the_first_value_is_the_one_from_before_us() {
    let (node, boot) = (Node::new(), BootId::current().unwrap());
    node.note(&boot, "0", "1");
    node.note(&boot, "7", "2");
    assert_eq!(node.restored(), ("0".to_owned(), vec![]));
}

#[test]
fn forwarding_is_left_to_the_next_pod_network() {
    let (node, boot) = (Node::new(), BootId::current().unwrap());
    node.note(&boot, "0", "2");
    let left = "setting net/ipv4/ip_forward: 10-flannel.conflist is another pod network's, which may live by it";
    assert_eq!(
        node.restored_beside(&Others::configured("10-flannel.conflist")),
        ("2".to_owned(), vec![left.to_owned()])
    );
    assert_eq!(node.restored(), ("0".to_owned(), vec![]));
}

#[test]
fn where_forwarding_is_left_the_host_goes_on_heeding_router_advertisements() {
    let (node, boot) = (Node::new(), BootId::current().unwrap());
    let value = node.path("sys/net/ipv6/conf/ens3/accept_ra");
    fs::create_dir_all(value.parent().unwrap()).unwrap();
    fs::write(&value, "2\n").unwrap();
    let key = "net/ipv6/conf/ens3/accept_ra".to_owned();
    let change = SettingChange { key, before: "1".to_owned(), set: "2".to_owned() };
    note_settings(&node.path("lib"), &boot, &[change]).unwrap();
    let now = || fs::read_to_string(&value).unwrap().trim().to_owned();
    let left =
        "setting net/ipv6/conf/ens3/accept_ra: 10-flannel.conflist is another pod network's, which may live by it";
    assert_eq!(node.restored_beside(&Others::configured("10-flannel.conflist")).1, [left]);
    assert_eq!(now(), "2");
    assert_eq!((node.restored().1, now()), (vec![], "1".to_owned()));
}

#[test]
fn what_somebody_changed_since_is_left_to_him_and_named() {
    let (node, boot) = (Node::new(), BootId::current().unwrap());
    node.note(&boot, "0", "1");
    let left = vec!["setting net/ipv4/ip_forward: somebody made it 2 since".to_owned()];
    assert_eq!(node.restored(), ("2".to_owned(), left));
}

#[test]
fn notes_of_another_boot_are_void_and_begun_anew() {
    let (node, boot) = (Node::new(), BootId::current().unwrap());
    node.note(&BootId::from_text("another"), "0", "2");
    assert_eq!(node.restored().0, "2");
    node.note(&boot, "5", "2");
    assert_eq!(node.restored().0, "5");
}

#[test]
fn the_same_again_is_not_written_and_a_later_versions_fields_are_kept() {
    let (node, boot) = (Node::new(), BootId::current().unwrap());
    node.note(&boot, "0", "2");
    let path = node.path("lib/sysctls.json");
    let text = fs::read_to_string(&path)
        .unwrap()
        .replacen('{', "{ \"later\": [1],", 1)
        .replace("\"set\"", "\"l\": 1, \"set\"");
    fs::write(&path, &text).unwrap();
    node.note(&boot, "1", "2");
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    node.note(&boot, "1", "3");
    let kept: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!((&kept["later"][0], &kept["settings"]["net/ipv4/ip_forward"]["l"]), (&1.into(), &1.into()));
    fs::write(&path, "{").unwrap();
    node.note(&boot, "4", "2");
    assert_eq!(node.restored().0, "4", "damaged notes are begun anew");
}

#[test]
fn nothing_but_the_networks_settings_is_written() {
    let (node, boot) = (Node::new(), BootId::current().unwrap());
    for key in ["kernel/core_pattern", "net/../kernel/core_pattern", "net//x"] {
        let change = SettingChange { key: key.to_owned(), before: "|x".to_owned(), set: "core".to_owned() };
        note_settings(&node.path("lib"), &boot, &[change]).unwrap();
    }
    assert_eq!(node.restored().1.len(), 3);
}
