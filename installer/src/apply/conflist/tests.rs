//! What becomes of our configuration is in `golden/conflist`. A folder is a case, named by a sentence. It has the file on disk,
//! the record (`null`: none), the plugins' answers, and what a reconcile does. `UPDATE_GOLDEN=1` writes that. Others are about
//! the configurations before our configuration.

use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::apply::tests::Node;
use crate::record::Record;
use crate::record::backup::Backup;
use crate::settings::fixture::{self, conf_file as conf};

use super::*;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/conflist");

/// The record of a case without one: what a node with portmap in the chain has.
const RECORD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/record.json");

/// A line of `plugins.txt`: name, who added it, its answer.
fn member(line: &str) -> ChainBinary {
    let words: Vec<&str> = line.split(' ').collect();
    let [name, origin, answer] = words[..] else { panic!("{line}") };
    let answer = match answer {
        "missing" => Answer::Missing,
        "failed" => Answer::Failed("no answer within 2s".to_owned()),
        versions => Answer::Speaks(versions.split(',').map(|version| version.parse().unwrap()).collect()),
    };
    let entry = match origin {
        "us" => Some(json!({"type": name})),
        "settings" => fixture::chain(name).pop(),
        _ => None,
    };
    ChainBinary { name: name.into(), path: Path::new("/node/bin").join(name), answer, entry }
}

/// What a reconcile does in a case, as text.
fn outcome(case: &Path) -> String {
    let read = |name: &str| fs::read(case.join(name)).ok();
    let chain: Vec<_> = String::from_utf8(read("plugins.txt").unwrap()).unwrap().lines().map(member).collect();
    let mut node = Node::new();
    node.settings.chain = chain.iter().skip(1).filter_map(|binary| binary.entry.clone()).collect();
    let path = node.settings.conflist();
    if let Some(contents) = read("disk.conflist") {
        fs::write(&path, contents).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    }
    let mut record = Record::default();
    let known = read("record.json").unwrap_or_else(|| fs::read(RECORD).unwrap());
    if let Some(known) = serde_json::from_slice::<Option<_>>(&known).unwrap() {
        record.configurations.insert(vcn::CONFLIST_FILE.to_owned(), known);
    }
    record.write(&node.settings.data_dir).unwrap();
    let report = node.apply(|applier| applier.conflist(true, |_, _| chain));
    let mut text = format!("configuration: {}\n", report.conflist);
    report.notes.iter().for_each(|note| writeln!(text, "note: {} [{}]", note.message, note.word()).unwrap());
    report.failures.iter().for_each(|error| writeln!(text, "failed: {error} [{}]", error.word()).unwrap());
    if node.record().configurations != record.configurations {
        text += "recorded\n";
    }
    for step in &report.steps {
        let is_kept = Backup::find(&node.settings.data_dir, vcn::CONFLIST_FILE).is_some();
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
        writeln!(text, "step: {step}\nmode {mode:04o}{}", if is_kept { ", after a backup" } else { "" }).unwrap();
        // A line for the header, and one for each plugin.
        let document: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let mut header = document.clone();
        header.as_object_mut().unwrap().shift_remove(PLUGINS);
        writeln!(text, "{header}").unwrap();
        plugins(&document).for_each(|plugin| writeln!(text, "{plugin}").unwrap());
    }
    text.replace(node.root(), "/node")
}

#[test]
fn outcomes_for_our_configuration_are_golden() {
    let mut cases: Vec<_> = fs::read_dir(GOLDEN).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    for case in &cases {
        let (outcome, golden) = (outcome(case), case.join("outcome.txt"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&golden, &outcome).unwrap();
        }
        assert_eq!(outcome, fs::read_to_string(&golden).unwrap_or_default(), "{}", case.display());
    }
    assert!(cases.len() > 30);
}

#[test]
fn preceding_configurations_are_reported_as_runtimes_use_them() {
    let node = Node::new();
    fs::create_dir(node.path("bin")).unwrap();
    for name in ["cilium-cni", "loopback"] {
        fs::write(node.path("bin").join(name), "").unwrap();
    }
    let texts = |files: &[ConfFile]| {
        let notes = before_ours(&node.settings, files);
        notes.iter().map(|note| format!("{} [{}]", note.message, note.word())).collect::<Vec<_>>()
    };
    let (loopback, cilium) = (conf("01-loopback.conf", &["loopback"]), conf("05-cilium.conflist", &["cilium-cni"]));
    let lacks = |name: &str| conf(name, &["x"]);
    let broken = |name: &str| fixture::faulty(name, &[], Fault::Refused("EOF".to_owned()));
    let before = "sorts before our configuration";
    let used = |runtime| format!("{before}: {runtime} uses that one");
    assert_eq!(
        texts(&[broken("00-broken.conf"), cilium.clone(), conf("87-podman.conflist", &["bridge"])]),
        [
            format!("00-broken.conf {before} and is not a valid one, so containerd refuses all: EOF [unusable-before]"),
            format!("05-cilium.conflist {} [sorts-before]", used("the runtime"))
        ]
    );
    let nothing = "and its plugins make no interface: pods get no network [sorts-before]";
    assert_eq!(texts(&[loopback, cilium.clone()]), [format!("01-loopback.conf {}, {nothing}", used("the runtime"))]);
    let names = "although it names plugins without a binary: x [lacks-plugins]";
    assert_eq!(
        texts(&[lacks("00-a.conflist"), broken("00-b.conf"), lacks("01-c.conflist"), cilium]),
        [
            format!("00-a.conflist {}, {names}", used("the runtime")),
            format!("05-cilium.conflist {} [sorts-before]", used("CRI-O"))
        ]
    );
}
