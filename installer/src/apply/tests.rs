//! Another program is faster; a write fails; the record after each.

use std::fs;
use std::path::PathBuf;

use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::decide::{Decision, Signal};
use crate::observed::ConfText;
use crate::settings::fixture;

struct Node {
    directory: TempDir,
}

impl Node {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes to `target`, which is believed to contain `found`.
    fn write(&self, target: &str, found: Option<&str>) -> Report {
        let change = ConfChange {
            target: self.path(target),
            document: json!("desired"),
            found: found.map(|found| ConfText::new(found.into(), 0o600)),
            wanted: json!({"plugins": [{"type": "vcn-native"}]}),
            backup: false,
            reverted: Some("it was removed".into()),
        };
        self.take(Step::ChangeConf(Box::new(change)))
    }

    fn take(&self, step: Step) -> Report {
        let settings = fixture::settings_in(self.directory.path());
        let (decided_by, reason) = (Signal::Setting, String::new());
        let decision = Decision { install: true, another: false, oke: false, decided_by, against: vec![], reason };
        let applier = Applier {
            settings: &settings,
            record: Record::read(&settings.data_dir).0,
            report: Report::new(decision),
            binaries_are_known: true,
            still_ours: &|| true,
        };
        applier.apply(vec![step])
    }

    fn record(&self) -> Record {
        Record::read(&self.path("lib")).0
    }

    fn words(report: &Report) -> Vec<&'static str> {
        report.failures.iter().map(Error::word).collect()
    }
}

#[test]
fn change_of_another_program_is_not_overwritten() {
    for (there, believed) in [(Some("foreign"), None), (Some("foreign"), Some("older")), (None, Some("gone by now"))] {
        let node = Node::new();
        let path = node.path(vcn::CONFLIST_FILE);
        there.iter().for_each(|text| fs::write(&path, text).unwrap());
        let report = node.write(vcn::CONFLIST_FILE, believed);
        assert_eq!((Node::words(&report), report.steps.is_empty()), (vec!["raced"], true));
        assert_eq!(fs::read_to_string(&path).ok().as_deref(), there);
        assert_eq!(node.record(), Record::default());
    }
}

#[test]
fn written_configuration_is_recorded_and_failed_one_is_not() {
    let node = Node::new();
    // As on a full disk: nothing can be created there.
    let report = node.write("/proc/gone/05-vcn-native.conflist", None);
    assert_eq!(Node::words(&report), ["write-failed"], "{report}");
    let known = |node: &Node| node.record().conflist().cloned().unwrap();
    assert!(known(&node).wanted.is_none() && known(&node).plugins.contains("vcn-native"), "a kill could leave it");
    assert!(node.write(vcn::CONFLIST_FILE, None).failures.is_empty());
    assert_eq!(fs::read_to_string(node.path(vcn::CONFLIST_FILE)).unwrap(), "\"desired\"\n");
    assert!(known(&node).wanted.is_some());
    assert_eq!(known(&node).recent(SystemTime::now()).len(), 1);
}

#[test]
fn backup_stays_until_the_record_is_written() {
    let node = Node::new();
    let (path, data) = (node.path(vcn::CONFLIST_FILE), node.path("lib"));
    let backup = || Backup::find(&data, vcn::CONFLIST_FILE);
    fs::write(&path, "foreign").unwrap();
    Backup::make(&path, vcn::CONFLIST_FILE, &data).unwrap();
    fs::write(&path, "written").unwrap();
    // In the way of the temporary file.
    fs::create_dir(data.join("installer.json.new")).unwrap();
    let report = node.take(Step::RemoveConf { path: path.clone(), found: b"written".into(), leftover: None });
    assert_eq!((Node::words(&report), backup().is_some()), (vec!["not-recorded"], true));
    assert_eq!(fs::read_to_string(&path).unwrap(), "foreign");
    fs::remove_dir(data.join("installer.json.new")).unwrap();
    assert!(node.take(Step::Forget { path }).failures.is_empty() && backup().is_none());
}
