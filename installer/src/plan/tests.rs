//! Plans for whole nodes. What becomes of our configuration is in `golden/conflist`: a folder is a case, named by a sentence,
//! with the file on disk, the record (`null`: none), the plugins' answers, and the plan. `UPDATE_GOLDEN=1` writes the plans.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::*;
use crate::observed::{ChainBinary, ConfAt, ConfText, PLUGINS, plugins};
use crate::settings::fixture::{self, conf_file as conf};
use crate::versions::Answer;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/conflist");

/// The record of a case without one: what a node with portmap in the chain has.
const RECORD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/record.json");

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn decision(install: bool) -> Decision {
    let decided_by = Signal::NodeLabel;
    Decision { install, another: false, oke: false, decided_by, against: vec![], reason: "for the test".into() }
}

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

/// The plan for a case, as text.
fn planned(case: &Path) -> String {
    let read = |name: &str| fs::read(case.join(name)).ok();
    let chain: Vec<_> = String::from_utf8(read("plugins.txt").unwrap()).unwrap().lines().map(member).collect();
    let mut settings = fixture::settings_in(Path::new("/node"));
    settings.chain = chain.iter().skip(1).filter_map(|binary| binary.entry.clone()).collect();
    let conflist =
        read("disk.conflist").map_or(ConfAt::Nothing, |contents| ConfAt::File(ConfText::new(contents, 0o640)));
    let mut record = Record::default();
    let known = read("record.json").unwrap_or_else(|| fs::read(RECORD).unwrap());
    if let Some(known) = serde_json::from_slice::<Option<_>>(&known).unwrap() {
        record.configurations.insert(vcn::CONFLIST_FILE.to_owned(), known);
    }
    let observed = Observed { conflist, chain, ..Observed::default() };
    let facts = Facts { settings: &settings, observed: &observed, record: &record, now: at(110) };
    let plan = plan(facts, &decision(true), true);
    let mut text = format!("configuration: {}\n", plan.conflist);
    plan.notes.iter().for_each(|note| writeln!(text, "note: {} [{}]", note.message, note.word()).unwrap());
    plan.failures.iter().for_each(|error| writeln!(text, "failed: {error} [{}]", error.word()).unwrap());
    if plan.adopted.is_some() {
        text += "recorded\n";
    }
    for step in &plan.steps {
        writeln!(text, "step: {step}").unwrap();
        let Step::ChangeConf(change) = step else { continue };
        let backup = if change.backup { ", after a backup" } else { "" };
        writeln!(text, "mode {:04o}{backup}", change.mode()).unwrap();
        // A line for the header, and one for each plugin.
        let mut header = change.document.clone();
        header.as_object_mut().unwrap().shift_remove(PLUGINS);
        writeln!(text, "{header}").unwrap();
        plugins(&change.document).for_each(|plugin| writeln!(text, "{plugin}").unwrap());
    }
    text
}

#[test]
fn plans_of_our_configuration_are_golden() {
    let mut cases: Vec<_> = fs::read_dir(GOLDEN).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    for case in &cases {
        let (plan, golden) = (planned(case), case.join("plan.txt"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&golden, &plan).unwrap();
        }
        assert_eq!(plan, fs::read_to_string(&golden).unwrap_or_default(), "{}", case.display());
    }
    assert!(cases.len() > 30);
}

fn facts<'a>(settings: &'a Settings, observed: &'a Observed, record: &'a Record) -> Facts<'a> {
    Facts { settings, observed, record, now: at(0) }
}

fn refused(name: &str, kinds: &[&str], why: &str) -> ConfFile {
    fixture::faulty(name, kinds, Fault::Refused(why.to_owned()))
}

#[test]
fn preceding_configurations_are_reported_as_runtimes_use_them() {
    let texts = |files: &[ConfFile], lacking: &[&str]| {
        let mut conf_files = files.to_vec();
        for file in conf_files.iter_mut().filter(|file| lacking.contains(&file.name.as_str())) {
            file.missing = vec!["x".to_owned()];
        }
        let observed = Observed { conf_files, ..Observed::default() };
        before_ours(&observed).iter().map(|note| format!("{} [{}]", note.message, note.word())).collect::<Vec<_>>()
    };
    let (loopback, cilium) = (conf("01-loopback.conf", &["loopback"]), conf("05-cilium.conflist", &["cilium-cni"]));
    let (lacks, broken) = (conf("00-a.conflist", &["x"]), |name: &str| refused(name, &[], "EOF"));
    let before = "sorts before our configuration";
    let used = |runtime| format!("{before}: {runtime} uses that one");
    assert_eq!(
        texts(&[broken("00-broken.conf"), cilium.clone(), conf("87-podman.conflist", &["bridge"])], &[]),
        [
            format!("00-broken.conf {before} and is not a valid one, so containerd refuses all: EOF [unusable-before]"),
            format!("05-cilium.conflist {} [sorts-before]", used("the runtime"))
        ]
    );
    let nothing = "which gives pods a loopback link and no network [sorts-before]";
    assert_eq!(
        texts(&[loopback.clone(), cilium.clone()], &[]),
        [format!("01-loopback.conf {}, {nothing}", used("the runtime"))]
    );
    let names = "although it names plugins without a binary: x [lacks-plugins]";
    assert_eq!(
        texts(&[lacks, broken("00-b.conf"), loopback, cilium], &["00-a.conflist", "01-loopback.conf"]),
        [
            format!("00-a.conflist {}, {names}", used("the runtime")),
            format!("05-cilium.conflist {} [sorts-before]", used("CRI-O"))
        ]
    );
}

#[test]
fn node_of_okes_cni_without_a_configuration_is_noted() {
    let settings = fixture::settings_in(Path::new("/node"));
    let noted = |files: Vec<ConfFile>, oke| {
        let observed = Observed { conf_files: files, ..Observed::default() };
        let (record, settings) = (Record::default(), &settings);
        let facts = facts(settings, &observed, &record);
        let notes = plan(facts, &Decision { oke, ..decision(false) }, true).notes;
        notes.iter().any(|note| note.kind == NoteKind::NoneThere)
    };
    let oci = |fault| vec![fixture::faulty("10-oci.conflist", &[], fault)];
    assert!(noted(vec![], true) && !noted(vec![], false));
    assert!(noted(vec![conf("99-loopback.conf", &["loopback"])], true));
    assert!(noted(oci(Fault::Refused("{".into())), true));
    assert!(!noted(vec![conf("00-multus.conf", &["multus"])], true));
    assert!(!noted(oci(Fault::Unread("a link".into())), true));
}

#[test]
fn leftover_conflist_is_removed_only_when_another_network_serves_pods() {
    let settings = fixture::settings_in(Path::new("/node"));
    let ours = || conf(vcn::CONFLIST_FILE, &["vcn-native"]);
    let flannel = || conf("10-flannel.conflist", &["flannel"]);
    let multus = || conf("00-multus.conf", &["multus-shim"]);
    let refused = || refused("04-flannel.conflist", &["flannel"], "it has no name");
    let (label, setting, nothing) = ((true, Signal::NodeLabel), (true, Signal::Setting), (false, Signal::Nothing));
    let none = "there is no configuration of another pod network";
    for (files, blocked, (another, decided_by), stays) in [
        (vec![ours(), flannel()], None, label, None),
        (vec![ours()], None, setting, None),
        (vec![ours()], None, label, Some((true, none))),
        (vec![multus(), ours()], None, label, Some((false, none))),
        (vec![refused(), ours()], None, label, Some((true, none))),
        (vec![ours(), flannel()], Some("pods".to_owned()), setting, Some((true, "pods"))),
        (vec![ours(), flannel()], None, nothing, Some((true, "no signal says for sure"))),
    ] {
        let leftover = Some(blocked.map_or_else(|| Leftover::File(b"{}".into()), Leftover::Blocked));
        let observed = Observed { conf_files: files, leftover, ..Observed::default() };
        let (record, settings) = (Record::default(), &settings);
        let facts = facts(settings, &observed, &record);
        let plan = plan(facts, &Decision { another, decided_by, ..decision(false) }, true);
        match (stays, &plan.notes[..]) {
            (None, []) => assert!(matches!(&plan.steps[..], [Step::RemoveConf { .. }]), "{plan:?}"),
            (Some((is_used, reason)), [note]) => {
                assert_eq!((plan.steps.len(), note.kind), (0, NoteKind::LeftBehind { another, is_used }));
                assert!(note.message.contains(reason), "{note:?}");
            }
            (stays, notes) => panic!("{stays:?} {notes:?}"),
        }
    }
}
