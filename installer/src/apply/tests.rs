//! Another program is faster; a write fails; the record after each.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::decide::Decision;
use crate::observed::Fault;
use crate::settings::MAIN;
use crate::settings::fixture::{self, conf_file as conf, faulty};
use crate::signals::Signal;

pub(super) struct Node {
    directory: TempDir,
    pub(super) settings: Settings,
    decision: Decision,
}

impl Node {
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("net.d")).unwrap();
        let (decided_by, reason) = (Signal::Setting, String::new());
        let decision = Decision { install: true, another: false, oke: false, decided_by, against: vec![], reason };
        Self { settings: fixture::settings_in(directory.path()), directory, decision }
    }

    pub(super) fn root(&self) -> &str {
        self.directory.path().to_str().unwrap()
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// What a reconcile reports that does this, 110 s after 1970.
    pub(super) fn apply(&self, act: impl FnOnce(&mut Applier<'_>)) -> Report {
        let mut applier = Applier {
            settings: &self.settings,
            record: self.record(),
            report: Report { applied: true, ..Report::new(self.decision.clone()) },
            now: SystemTime::UNIX_EPOCH + Duration::from_secs(110),
            still_ours: &|| true,
            binaries_in_place: true,
        };
        act(&mut applier);
        applier.report
    }

    /// Writes to `target`, which is believed to contain `found`.
    fn write(&self, target: &str, found: Option<&str>) -> Report {
        let change = ConfChange {
            target: self.path(target),
            document: json!("desired"),
            found: found.map(|found| ConfText::new(found.into(), 0o600)),
            our_part: json!({"plugins": [{"type": "vcn-native"}]}),
            reverted: Some("it was removed".into()),
        };
        self.apply(|applier| applier.write(change))
    }

    pub(super) fn record(&self) -> Record {
        Record::read(&self.path("lib")).0
    }

    fn words(report: &Report) -> Vec<&'static str> {
        report.failures.iter().map(Error::word).collect()
    }
}

#[test]
fn change_of_another_program_is_not_overwritten() {
    for (there, believed) in [(Some("foreign"), None), (Some("foreign"), Some("older")), (None, Some("removed"))] {
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
    assert!(known(&node).our_part.is_none() && known(&node).plugins.contains("vcn-native"), "a kill could leave it");
    assert!(node.write(vcn::CONFLIST_FILE, None).failures.is_empty());
    assert_eq!(fs::read_to_string(node.path(vcn::CONFLIST_FILE)).unwrap(), "\"desired\"\n");
    assert!(known(&node).our_part.is_some());
    assert_eq!(known(&node).rewrites, [110]);
}

#[test]
fn backup_stays_until_the_record_is_written() {
    let node = Node::new();
    let (path, data) = (node.path(vcn::CONFLIST_FILE), node.path("lib"));
    let backup = || Backup::find(&data, vcn::CONFLIST_FILE);
    let foreign = r#"{"name": "foreign"}"#;
    fs::write(&path, foreign).unwrap();
    Backup::make(&path, vcn::CONFLIST_FILE, &data).unwrap();
    fs::write(&path, "written").unwrap();
    // In the way of the temporary file.
    fs::create_dir(data.join("installer.json.new")).unwrap();
    let report = node.apply(|applier| _ = applier.step(String::new(), |applier| applier.remove(&path, b"written")));
    assert_eq!((Node::words(&report), backup().is_some()), (vec!["not-recorded"], true));
    assert_eq!(fs::read_to_string(&path).unwrap(), foreign);
    fs::remove_dir(data.join("installer.json.new")).unwrap();
    assert!(node.apply(|applier| applier.forget(&path).unwrap()).failures.is_empty() && backup().is_none());
}

#[test]
fn only_binary_with_contents_and_mode_of_its_source_stays() {
    let node = Node::new();
    let [source, target] = ["source", "bin"].map(|name| node.path(name).join(MAIN));
    fs::create_dir(node.path("source")).unwrap();
    fs::create_dir(node.path("bin")).unwrap();
    fs::write(&source, "binary").unwrap();
    let install = || node.apply(|applier| applier.binaries());
    assert_eq!(install().steps, [format!("install {} from {}", target.display(), source.display())]);
    for (contents, mode, expected) in [
        ("binary", 0o755, None),
        ("binary", 0o644, Some(format!("chmod 0755 {} (was 0644)", target.display()))),
        ("else", 0o755, Some(format!("replace {} from {}", target.display(), source.display()))),
    ] {
        fs::write(&target, contents).unwrap();
        fs::set_permissions(&target, fs::Permissions::from_mode(mode)).unwrap();
        assert!(install().steps.iter().eq(&expected), "{contents} {mode:o}");
        assert_eq!(fs::read(&target).unwrap(), b"binary");
    }
    fs::remove_file(&target).unwrap();
    symlink(&source, &target).unwrap();
    assert_eq!(Node::words(&install()), ["in-the-way"]);
    fs::remove_file(&source).unwrap();
    assert_eq!(Node::words(&install()), ["source-missing"]);
}

#[test]
fn node_of_okes_cni_without_a_configuration_is_noted() {
    let mut node = Node::new();
    let mut noted = |files: Vec<ConfFile>, oke| {
        node.decision = Decision { oke, install: false, ..node.decision.clone() };
        let report = node.apply(|applier| applier.report.notes.extend(none_there(applier, &files)));
        report.notes.iter().any(|note| note.kind == NoteKind::NoneThere)
    };
    let oci = |fault| vec![faulty("10-oci.conflist", &[], fault)];
    assert!(noted(vec![], true) && !noted(vec![], false));
    assert!(noted(vec![conf("99-loopback.conf", &["loopback"])], true));
    assert!(noted(oci(Fault::Refused("{".into())), true));
    assert!(!noted(vec![conf("00-multus.conf", &["multus"])], true));
    assert!(!noted(oci(Fault::Unread("a link".into())), true));
}

#[test]
fn configuration_without_an_interface_is_noted_where_runtime_uses_it() {
    let mut node = Node::new();
    fs::create_dir(node.path("bin")).unwrap();
    ["istio-cni", "flannel"].iter().for_each(|name| fs::write(node.path("bin").join(name), "").unwrap());
    node.decision = Decision { install: false, ..node.decision.clone() };
    let noted = |files: &[ConfFile]| {
        let report = node.apply(|applier| applier.report.notes.extend(none_there(applier, files)));
        report.notes.into_iter().map(|note| note.message).collect::<String>()
    };
    let (istio, flannel) = (|| conf("05-istio.conflist", &["istio-cni"]), || conf("10-flannel.conflist", &["flannel"]));
    let unread = || faulty("04-link.conflist", &[], Fault::Unread("a link".into()));
    let uses = format!("the runtime uses 05-istio.conflist of {}/net.d, whose plugins (istio-cni) make", node.root());
    assert!(noted(&[istio(), flannel()]).starts_with(&uses));
    assert!(noted(&[faulty("04-a.conflist", &[], Fault::Refused("{".into())), istio()]).starts_with(&uses));
    for files in
        [vec![flannel(), istio()], vec![unread(), istio()], vec![conf("04-a.conflist", &["tuning"]), flannel()]]
    {
        assert_eq!(noted(&files), "");
    }
    fs::create_dir_all(node.path("net.d")).unwrap();
    fs::write(node.settings.copied_conflist(), "{}").unwrap();
    assert_eq!(noted(&[istio(), flannel()]), "", "the runtime uses our copy of the other");
}

#[test]
fn leftover_conflist_is_removed_only_when_another_network_serves_pods() {
    let mut node = Node::new();
    let path = node.settings.conflist();
    let ours = || conf(vcn::CONFLIST_FILE, &["vcn-native"]);
    let flannel = || conf("10-flannel.conflist", &["flannel"]);
    let multus = || conf("00-multus.conf", &["multus-shim"]);
    let chained = || conf("99-istio.conflist", &["istio-cni", "portmap"]);
    let refused = || faulty("04-flannel.conflist", &["flannel"], Fault::Refused("it has no name".to_owned()));
    let (label, setting, nothing) = ((true, Signal::NodeLabel), (true, Signal::Setting), (false, Signal::Nothing));
    let none = "there is no configuration of another pod network";
    for (files, (another, decided_by), stays) in [
        (vec![ours(), flannel()], label, None),
        (vec![ours()], setting, None),
        (vec![ours()], label, Some((true, none))),
        (vec![ours(), chained()], label, Some((true, none))),
        (vec![multus(), ours()], label, Some((false, none))),
        (vec![refused(), ours()], label, Some((true, none))),
        (vec![ours(), flannel()], nothing, Some((true, "no signal says for sure"))),
    ] {
        fs::write(&path, ours().document.to_string()).unwrap();
        node.decision = Decision { install: false, another, decided_by, ..node.decision.clone() };
        let report = node.apply(|applier| applier.leftover(&files));
        assert_eq!((path.exists(), report.steps.len()), (stays.is_some(), usize::from(stays.is_none())), "{report}");
        let noted = report.notes.iter().map(|note| (note.kind, note.message.contains(stays.unwrap().1)));
        let kind = stays.map(|(is_used, _)| (NoteKind::LeftBehind { another, is_used }, true));
        assert!(noted.eq(kind), "{report}");
    }
}
