//! What is planned for which disk.

use std::collections::BTreeSet;
use std::path::Path;

use super::*;
use crate::observed::{ChainBinary, ConfFile};
use crate::versions::Answer;
use crate::{PodNetwork, Signal, conflist};

const ALL: [&str; 4] = ["0.3.1", "0.4.0", "1.0.0", "1.1.0"];

fn settings() -> Settings {
    Settings {
        pod_network: PodNetwork::Auto,
        takeover: false,
        portmap: true,
        cni_bin_dir: "/opt/cni/bin".into(),
        cni_conf_dir: "/etc/cni/net.d".into(),
        source_dir: "/src".into(),
    }
}

fn decision(install: bool) -> Decision {
    Decision { install, decided_by: Signal::NodeLabel, against: vec![], reason: "for the test".into() }
}

fn speaks(versions: &[&str]) -> Answer {
    Answer::Speaks(versions.iter().map(|text| text.parse().unwrap()).collect())
}

/// A node that has everything, and its configuration's text.
fn complete() -> (Observed, Vec<u8>) {
    let digest = Digest::of(b"plugin");
    let member =
        |name, path: &str, versions: &[&str]| ChainBinary { name, path: path.into(), answer: speaks(versions) };
    let versions: BTreeSet<_> = ALL[..3].iter().map(|text| text.parse().unwrap()).collect();
    let text = conflist::render(&["vcn-native", "portmap"], &versions);
    let observed = Observed {
        conf_files: vec![ConfFile { name: vcn::CONFLIST_FILE.into(), contents: Contents::parse(&text) }],
        conflist: Some(text.clone()),
        missing_directories: vec![],
        binaries: vec![Binary {
            source: "/src/vcn-native".into(),
            target: "/opt/cni/bin/vcn-native".into(),
            digest,
            found: Found::File { digest, mode: BINARY_MODE },
        }],
        chain: vec![
            member("vcn-native", "/src/vcn-native", &ALL),
            member("portmap", "/opt/cni/bin/portmap", &["0.1.0", "0.3.1", "0.4.0", "1.0.0"]),
        ],
        stale: vec![],
    };
    (observed, text)
}

fn planned(observed: &Observed, usable: bool) -> (Vec<String>, Vec<&'static str>, Conflist) {
    let plan = plan(&settings(), &decision(true), observed, usable);
    assert!(plan.failures.is_empty(), "{:?}", plan.failures);
    (plan.steps.iter().map(Step::to_string).collect(), plan.notes.iter().map(Note::word).collect(), plan.conflist)
}

fn contents_planned(observed: &Observed) -> String {
    match plan(&settings(), &decision(true), observed, true).steps.as_slice() {
        [Step::WriteConflist { contents, .. }] => String::from_utf8(contents.clone()).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_complete_node_needs_nothing() {
    let (observed, _) = complete();
    assert_eq!(planned(&observed, true), (vec![], vec![], Conflist::InPlace));
    assert_eq!(planned(&observed, false), (vec![], vec![], Conflist::InPlace), "never removed on restart");
}

#[test]
fn an_empty_node_gets_binaries_first_and_the_configuration_when_an_address_is_usable() {
    let (mut observed, _) = complete();
    observed.conf_files.clear();
    observed.conflist = None;
    observed.missing_directories = vec!["/opt/cni/bin".into(), "/etc/cni/net.d".into()];
    observed.stale = vec!["/opt/cni/bin/.oke-cni-installer.1.tmp".into()];
    observed.binaries[0].found = Found::Nothing;
    let early = [
        "create directory /opt/cni/bin",
        "create directory /etc/cni/net.d",
        "remove stale /opt/cni/bin/.oke-cni-installer.1.tmp",
        "install /opt/cni/bin/vcn-native from /src/vcn-native",
    ];
    assert_eq!(planned(&observed, false), (early.map(str::to_owned).to_vec(), vec![], Conflist::Waiting));
    let mut all = early.map(str::to_owned).to_vec();
    all.push("install /etc/cni/net.d/05-vcn-native.conflist".into());
    assert_eq!(planned(&observed, true), (all, vec![], Conflist::Pending));
}

#[test]
fn nothing_is_planned_where_nothing_is_to_be_installed() {
    let (observed, _) = complete();
    let plan = plan(&settings(), &decision(false), &observed, true);
    assert_eq!((plan.steps, plan.conflist), (vec![], Conflist::NotWanted));
    assert_eq!(plan.notes, [Note::LeftBehind], "ours is not removed, but said");
}

#[test]
fn other_binaries_are_replaced_and_modes_repaired() {
    let (mut observed, _) = complete();
    observed.binaries[0].found = Found::File { digest: Digest::of(b"old"), mode: 0o755 };
    assert_eq!(planned(&observed, true).0, ["replace /opt/cni/bin/vcn-native from /src/vcn-native"]);
    observed.binaries[0].found = Found::File { digest: observed.binaries[0].digest, mode: 0o644 };
    assert_eq!(planned(&observed, true).0, ["chmod 0755 /opt/cni/bin/vcn-native (was 0644)"]);
}

#[test]
fn a_directory_in_the_way_is_a_failure() {
    let (mut observed, _) = complete();
    observed.binaries[0].found = Found::Other;
    let words: Vec<_> = plan(&settings(), &decision(true), &observed, true).failures.iter().map(Error::word).collect();
    assert_eq!(words, ["in-the-way"]);
}

#[test]
fn a_plugin_that_is_missing_is_left_out_and_the_versions_follow() {
    let (mut observed, _) = complete();
    observed.chain[1].answer = Answer::Missing;
    let (steps, notes, _) = planned(&observed, true);
    assert_eq!(steps, ["replace /etc/cni/net.d/05-vcn-native.conflist"]);
    assert_eq!(notes, ["plugin-left-out"]);
    let text = contents_planned(&observed);
    assert!(!text.contains("portmap") && text.contains("1.1.0"), "{text}");
}

#[test]
fn a_plugin_that_speaks_no_1_0_0_is_left_out() {
    let (mut observed, _) = complete();
    observed.chain[1].answer = speaks(&["0.3.1", "0.4.0"]);
    assert!(!contents_planned(&observed).contains("portmap"));
}

#[test]
fn a_listed_plugin_that_gives_no_answer_this_time_stays() {
    let (mut observed, _) = complete();
    observed.chain[1].answer = Answer::Refused("no answer within 2s".into());
    assert_eq!(planned(&observed, true), (vec![], vec!["plugin-kept"], Conflist::InPlace));
    observed.conf_files.clear();
    observed.conflist = None;
    assert!(!contents_planned(&observed).contains("portmap"), "but is not added then");
}

#[test]
fn our_own_plugin_must_answer_before_there_is_a_configuration() {
    for answer in [Answer::Refused("no answer within 2s".into()), speaks(&["1.1.0"]), Answer::Missing] {
        let (mut observed, _) = complete();
        observed.conf_files.clear();
        observed.conflist = None;
        observed.chain[0].answer = answer;
        let plan = plan(&settings(), &decision(true), &observed, true);
        assert_eq!((plan.steps, plan.conflist), (vec![], Conflist::Pending));
        assert_eq!(plan.failures.iter().map(Error::word).collect::<Vec<_>>(), ["version-unknown"]);
    }
}

#[test]
fn what_others_added_to_our_configuration_is_left() {
    let (mut observed, text) = complete();
    let extended = String::from_utf8(text).unwrap().replace(r#""type": "portmap""#, r#""type": "istio-cni""#);
    observed.conflist = Some(extended.into_bytes());
    observed.chain[1].answer = Answer::Missing;
    assert_eq!(planned(&observed, true), (vec![], vec!["extended"], Conflist::InPlace));
}

#[test]
fn a_damaged_or_emptied_configuration_is_written_again() {
    for damaged in [&b""[..], b"{", br#"{"plugins":[{"type":"istio-cni"}]}"#, br#"{"plugins":[]}"#] {
        let (mut observed, text) = complete();
        observed.conflist = Some(damaged.to_vec());
        assert_eq!(planned(&observed, true).0, ["replace /etc/cni/net.d/05-vcn-native.conflist"]);
        assert_eq!(contents_planned(&observed).as_bytes(), text);
    }
}

#[test]
fn files_before_ours_are_reported() {
    let (mut observed, _) = complete();
    let malformed = Contents::Malformed("EOF".into());
    observed.conf_files.insert(0, ConfFile { name: "00-broken.conf".into(), contents: malformed });
    let cilium = Contents::Plugins(vec!["cilium-cni".into()]);
    observed.conf_files.insert(1, ConfFile { name: "05-cilium.conflist".into(), contents: cilium });
    let after = Contents::Plugins(vec!["bridge".into()]);
    observed.conf_files.push(ConfFile { name: "87-podman.conflist".into(), contents: after });
    assert_eq!(planned(&observed, true), (vec![], vec!["malformed-before", "sorts-before"], Conflist::InPlace));
}

#[test]
fn portmap_is_only_asked_where_it_is_wanted() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("vcn-native"), "").unwrap();
    let asked = |portmap| {
        let source_dir = directory.path().to_path_buf();
        let nowhere = Path::new("/nowhere").to_path_buf();
        let settings =
            Settings { portmap, source_dir, cni_bin_dir: nowhere.clone(), cni_conf_dir: nowhere, ..settings() };
        let chain = Observed::look(&settings, vec![]).unwrap().chain;
        chain.iter().map(|binary| binary.name).collect::<Vec<_>>()
    };
    assert_eq!(asked(true), ["vcn-native", "portmap"]);
    assert_eq!(asked(false), ["vcn-native"]);
}
