//! Somebody is faster; a write fails; what we remember of it.

use std::path::PathBuf;

use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::{Decision, Signal};

struct Node {
    directory: TempDir,
    record: Record,
}

impl Node {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), record: Record::default() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes `new` where `found` is believed to be.
    fn write(&mut self, found: Option<&str>, new: &str) -> Report {
        self.write_at("05-vcn-native.conflist", found, new)
    }

    fn write_at(&mut self, target: &str, found: Option<&str>, new: &str) -> Report {
        let writing = Writing {
            name: "05-vcn-native.conflist".into(),
            target: self.path(target),
            contents: new.into(),
            mode: 0o600,
            found: found.map(|text| text.as_bytes().to_vec()),
            link: None,
            wanted: json!({}),
            purpose: Purpose::Ours,
            disturbed: vec!["it was removed".into()],
        };
        let decision = Decision {
            install: true,
            another: false,
            oke: false,
            decided_by: Signal::Setting,
            against: vec![],
            reason: String::new(),
        };
        let file = RecordFile::new(&self.path("lib"));
        let applier = Applier {
            record: &mut self.record,
            file: &file,
            inherited: true,
            still_ours: &|| true,
            now: SystemTime::now(),
        };
        applier.apply(vec![Step::WriteConflist(Box::new(writing))], Report::new(decision))
    }

    fn conflist(&self) -> String {
        fs::read_to_string(self.path("05-vcn-native.conflist")).unwrap()
    }
}

#[test]
fn what_somebody_wrote_since_we_looked_is_not_overwritten() {
    for believed in [None, Some("older"), Some("")] {
        let mut node = Node::new();
        fs::write(node.path("05-vcn-native.conflist"), "his").unwrap();
        let report = node.write(believed, "ours");
        assert_eq!(report.failures.iter().map(Error::word).collect::<Vec<_>>(), ["raced"]);
        assert_eq!((node.conflist().as_str(), report.changed()), ("his", false));
        assert_eq!(node.record, Record::default());
    }
    let mut node = Node::new();
    assert_eq!(node.write(Some("gone by now"), "ours").failures[0].word(), "raced");
}

#[test]
fn what_could_not_be_written_is_not_remembered_as_written() {
    let mut node = Node::new();
    fs::create_dir(node.path("05-vcn-native.conflist")).unwrap();
    let report = node.write(None, "ours");
    assert_eq!(report.failures.len(), 1, "{report}");
    assert_eq!(node.record, Record::default());
}

/// It is remembered before it is written, and then it cannot be written.
#[test]
fn what_the_disk_did_not_take_is_remembered_as_it_was() {
    let mut node = Node::new();
    assert!(node.write(None, "ours").failures.is_empty());
    let kept = |node: &Node| RecordFile::new(&node.path("lib")).read().unwrap().configurations;
    let before = kept(&node);
    assert!(!before.is_empty());
    // As on a full disk: no temporary file can be made there.
    let report = node.write_at("gone/05-vcn-native.conflist", None, "newer");
    assert_eq!(report.failures.iter().map(Error::word).collect::<Vec<_>>(), ["write-failed"], "{report}");
    assert_eq!((&node.record.configurations, kept(&node)), (&before, before.clone()));
}

#[test]
fn what_was_written_is_remembered_with_the_repair() {
    let mut node = Node::new();
    assert!(node.write(None, "ours").failures.is_empty());
    assert_eq!(node.conflist(), "ours");
    let known = &node.record.configurations["05-vcn-native.conflist"];
    assert_eq!((known.written.as_deref(), known.fights.recent(SystemTime::now()).len()), (Some("ours"), 1));
    assert_eq!(RecordFile::new(&node.path("lib")).read().unwrap().configurations, node.record.configurations);
}
