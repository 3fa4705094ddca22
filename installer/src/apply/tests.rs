//! Another program is faster; a write fails; the record after each.

use std::path::PathBuf;

use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::decide::{Decision, Signal};
use crate::settings::fixture;

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

    /// Writes `new` to `target`, which is believed to contain `found`.
    fn write(&mut self, target: &str, found: Option<&str>, new: &str) -> Report {
        let settings = fixture::settings_in(self.directory.path());
        let change = ConfChange {
            target: self.path(target),
            contents: new.into(),
            mode: 0o600,
            found: found.map(Into::into),
            wanted: json!({"plugins": [{"type": "vcn-native"}]}),
            backup: false,
            purpose: Purpose::Ours,
            reverted: Some("it was removed".into()),
        };
        let (decided_by, reason) = (Signal::Setting, String::new());
        let decision = Decision { install: true, another: false, oke: false, decided_by, against: vec![], reason };
        let file = RecordFile::new(&settings.data_dir);
        let applier = Applier {
            settings: &settings,
            record: &mut self.record,
            file: &file,
            still_ours: &|| true,
            now: SystemTime::now(),
        };
        applier.apply(vec![Step::ChangeConf(Box::new(change))], Report::new(decision))
    }

    fn words(report: &Report) -> Vec<&'static str> {
        report.failures.iter().map(Error::word).collect()
    }
}

#[test]
fn change_of_another_program_is_not_overwritten() {
    for (there, believed) in [(Some("foreign"), None), (Some("foreign"), Some("older")), (None, Some("gone by now"))] {
        let mut node = Node::new();
        let path = node.path(vcn::CONFLIST_FILE);
        there.iter().for_each(|text| fs::write(&path, text).unwrap());
        let report = node.write(vcn::CONFLIST_FILE, believed, "desired");
        assert_eq!((Node::words(&report), report.changed()), (vec!["raced"], false));
        assert_eq!(fs::read_to_string(&path).ok().as_deref(), there);
        assert_eq!(node.record, Record::default());
    }
}

#[test]
fn written_configuration_is_recorded_and_failed_one_is_not() {
    let mut node = Node::new();
    // As on a full disk: no temporary file can be created there.
    let report = node.write("gone/05-vcn-native.conflist", None, "desired");
    assert_eq!(Node::words(&report), ["write-failed"], "{report}");
    let known = |node: &Node| {
        let read = RecordFile::new(&node.path("lib")).read().unwrap();
        assert_eq!(read.configurations, node.record.configurations);
        node.record.configurations[vcn::CONFLIST_FILE].clone()
    };
    assert!(!known(&node).is_written() && known(&node).plugins.contains("vcn-native"), "a kill could leave it");
    assert!(node.write(vcn::CONFLIST_FILE, None, "desired").failures.is_empty());
    assert_eq!(fs::read_to_string(node.path(vcn::CONFLIST_FILE)).unwrap(), "desired");
    assert!(known(&node).is_written());
    assert_eq!(known(&node).rewrites.recent(SystemTime::now()).len(), 1);
}
