//! What is planned for which disk.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use super::*;
use crate::observed::{At, ChainBinary, ConfFile, ConfText, Gives, Leftover, There, Whose};
use crate::versions::Answer;
use crate::{Digest, Entry, Signal, conflist, fixture};

mod war;

const ALL: [&str; 4] = ["0.3.1", "0.4.0", "1.0.0", "1.1.0"];
const NOW: SystemTime = SystemTime::UNIX_EPOCH;

fn settings() -> Settings {
    fixture::settings_in(Path::new("/node"))
}

fn decision(install: bool) -> Decision {
    Decision {
        install,
        another: false,
        oke: false,
        decided_by: Signal::NodeLabel,
        against: vec![],
        reason: "for the test".into(),
    }
}

fn speaks(versions: &[&str]) -> Answer {
    Answer::Speaks(versions.iter().map(|text| text.parse().unwrap()).collect())
}

fn conf(text: &str) -> At {
    At::File(ConfText { contents: text.into(), mode: 0o600, target: "/node/net.d/05-vcn-native.conflist".into() })
}

fn member(name: &str, versions: &[&str], whose: Whose) -> ChainBinary {
    ChainBinary { name: name.into(), path: Path::new("/node/bin").join(name), answer: speaks(versions), whose }
}

/// A node that has everything, and its configuration's text.
fn complete() -> (Observed, String) {
    let digest = Digest::of(b"plugin");
    let versions: BTreeSet<_> = ALL[..3].iter().map(|text| text.parse().unwrap()).collect();
    let text = conflist::text(&conflist::wanted(&settings().entries(), &versions));
    let observed = Observed {
        conflist: conf(&text),
        binaries: vec![Binary {
            source: "/node/source/vcn-native".into(),
            target: "/node/bin/vcn-native".into(),
            digest,
            found: Found::File { digest, mode: BINARY_MODE },
        }],
        chain: vec![
            member("vcn-native", &ALL, Whose::Main),
            member("portmap", &["0.1.0", "0.3.1", "0.4.0", "1.0.0"], Whose::Settings),
        ],
        ..Observed::of(vec![ConfFile {
            name: vcn::CONFLIST_FILE.into(),
            contents: Contents::parse(text.as_bytes()),
            called: Gives::Others,
        }])
    };
    (observed, text)
}

/// What we remember of having written that.
fn written(text: &str) -> Record {
    let mut record = Record::default();
    let known = record.configurations.entry(vcn::CONFLIST_FILE.to_owned()).or_default();
    known.written = Some(text.to_owned());
    known.wanted = serde_json::from_str(text).ok();
    record
}

fn plan_of(observed: &Observed, record: &Record, install: bool, usable: bool) -> Plan {
    plan(Facts { settings: &settings(), observed, record, remembers: true, now: NOW }, &decision(install), usable)
}

fn planned(observed: &Observed, usable: bool) -> (Vec<String>, Vec<&'static str>, Conflist) {
    let plan = plan_of(observed, &Record::default(), true, usable);
    assert!(plan.failures.is_empty(), "{:?}", plan.failures);
    (plan.steps.iter().map(Step::to_string).collect(), plan.notes.iter().map(Note::word).collect(), plan.conflist)
}

fn writing(plan: &Plan) -> &Writing {
    match plan.steps.as_slice() {
        [Step::WriteConflist(writing)] => writing,
        other => panic!("{other:?}"),
    }
}

fn contents_planned(observed: &Observed) -> String {
    writing(&plan_of(observed, &Record::default(), true, true)).contents.clone()
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
    observed.conflist = At::Nothing;
    observed.missing_directories = vec!["/node/bin".into(), "/node/net.d".into()];
    observed.stale = vec!["/node/bin/.oke-cni-installer.1.tmp".into()];
    observed.binaries[0].found = Found::Nothing;
    let early = [
        "create directory /node/bin",
        "create directory /node/net.d",
        "remove stale /node/bin/.oke-cni-installer.1.tmp",
        "install /node/bin/vcn-native from /node/source/vcn-native",
    ];
    assert_eq!(planned(&observed, false), (early.map(str::to_owned).to_vec(), vec![], Conflist::Waiting));
    let mut all = early.map(str::to_owned).to_vec();
    all.push("install /node/net.d/05-vcn-native.conflist".into());
    assert_eq!(planned(&observed, true), (all, vec![], Conflist::Pending));
}

#[test]
fn nothing_is_planned_where_nothing_is_to_be_installed() {
    let (mut observed, text) = complete();
    observed.binaries.clear();
    let path = std::path::PathBuf::from("/node/net.d/05-vcn-native.conflist");
    observed.leftover =
        Some(Leftover::There(There { target: path.clone(), path, found: Some(text.into()), stays: None }));
    let plan = plan_of(&observed, &Record::default(), false, true);
    assert_eq!((plan.steps, plan.conflist), (vec![], Conflist::NotWanted));
    let reason = "nothing says for sure that the pod network is another".to_owned();
    assert_eq!(plan.notes, [Note::LeftBehind { another: false, first: true, reason }], "ours is not removed, but said");
}

#[test]
fn other_binaries_are_replaced_and_modes_repaired() {
    let (mut observed, _) = complete();
    observed.binaries[0].found = Found::File { digest: Digest::of(b"old"), mode: 0o755 };
    assert_eq!(planned(&observed, true).0, ["replace /node/bin/vcn-native from /node/source/vcn-native"]);
    observed.binaries[0].found = Found::File { digest: observed.binaries[0].digest, mode: 0o644 };
    assert_eq!(planned(&observed, true).0, ["chmod 0755 /node/bin/vcn-native (was 0644)"]);
}

#[test]
fn a_directory_in_the_way_is_a_failure() {
    let (mut observed, _) = complete();
    observed.binaries[0].found = Found::Other;
    let words: Vec<_> = plan_of(&observed, &Record::default(), true, true).failures.iter().map(Error::word).collect();
    assert_eq!(words, ["in-the-way"]);
}

#[test]
fn a_plugin_that_is_missing_is_left_out_and_the_versions_follow() {
    let (mut observed, _) = complete();
    observed.chain[1].answer = Answer::Missing;
    let (steps, notes, _) = planned(&observed, true);
    assert_eq!(steps, ["replace /node/net.d/05-vcn-native.conflist"]);
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
    observed.conflist = At::Nothing;
    assert!(!contents_planned(&observed).contains("portmap"), "but is not added then");
    assert_eq!(planned(&observed, true).1, ["plugin-unanswered"]);
}

#[test]
fn our_own_plugin_must_answer_before_there_is_a_configuration() {
    for answer in [Answer::Refused("no answer within 2s".into()), speaks(&["1.1.0"]), Answer::Missing] {
        let (mut observed, _) = complete();
        observed.conf_files.clear();
        observed.conflist = At::Nothing;
        observed.chain[0].answer = answer;
        let plan = plan_of(&observed, &Record::default(), true, true);
        assert_eq!((plan.steps, plan.conflist), (vec![], Conflist::Pending));
        assert_eq!(plan.failures.iter().map(Error::word).collect::<Vec<_>>(), ["version-unknown"]);
    }
}

#[test]
fn what_others_added_stays_and_is_asked_for_its_versions() {
    let (mut observed, text) = complete();
    let extended =
        text.replace("\"snat\": true\n    }", "\"snat\": true\n    },\n    {\"type\":\"istio-cni\",\"uid\":1e30}");
    observed.conflist = conf(&extended);
    observed.chain.push(member("istio-cni", &["0.3.1", "0.4.0", "1.0.0"], Whose::Others));
    assert_eq!(planned(&observed, true), (vec![], vec!["extended"], Conflist::InPlace));
    observed.chain[2].answer = speaks(&["0.4.0", "1.0.0"]);
    let changed = contents_planned(&observed);
    assert!(changed.contains("{\"type\":\"istio-cni\",\"uid\":1e30}") && !changed.contains("0.3.1"), "{changed}");
}

#[test]
fn an_old_plugin_of_others_lowers_the_version_and_is_named() {
    let (mut observed, text) = complete();
    observed.conflist = conf(&text.replace("[\n    {", "[\n    {\"type\": \"older\"},\n    {"));
    observed.chain.push(member("older", &["0.3.0", "0.3.1"], Whose::Others));
    let (_, notes, _) = planned(&observed, true);
    assert_eq!(notes, ["plugin-unsure", "extended"]);
    let changed = contents_planned(&observed);
    assert!(changed.contains("\"cniVersion\": \"0.3.1\""), "{changed}");
    // With nothing in common, ours stays as it is.
    observed.chain[2].answer = speaks(&["0.1.0"]);
    assert_eq!(planned(&observed, true).0, Vec::<String>::new());
}

#[test]
fn a_plugin_of_others_that_gives_no_answer_changes_nothing() {
    let (mut observed, text) = complete();
    let narrow = text.replace("    \"0.3.1\",\n", "");
    observed.conflist = conf(&narrow.replace("\"snat\": true\n    }", "\"snat\": true\n    }, {\"type\":\"x\"}"));
    observed.chain.push(member("x", &[], Whose::Others));
    let cases = [(Answer::Missing, "plugin-missing"), (Answer::Refused("it hangs".into()), "plugin-unsure")];
    for (answer, told) in cases {
        observed.chain[2].answer = answer;
        assert_eq!(planned(&observed, true), (vec![], vec![told, "extended"], Conflist::InPlace));
    }
}

#[test]
fn a_damaged_configuration_is_written_again_and_one_without_ours_gets_it_back() {
    for damaged in ["", "{", r#"{"plugins":{}}"#] {
        let (mut observed, text) = complete();
        observed.conflist = conf(damaged);
        assert_eq!(planned(&observed, true).0, ["replace /node/net.d/05-vcn-native.conflist"]);
        assert_eq!(contents_planned(&observed), text);
    }
    let (mut observed, _) = complete();
    observed.conflist = conf(r#"{"plugins":[{"type":"istio-cni"}]}"#);
    let (steps, notes, conflist) = planned(&observed, true);
    assert_eq!((steps.len(), notes, conflist), (1, vec!["extended"], Conflist::Pending));
    assert!(contents_planned(&observed).starts_with(r#"{"plugins":[{"type":"vcn-native"},{"type":"portmap","#));
}

#[test]
fn mode_and_place_of_a_configuration_stay() {
    let (mut observed, text) = complete();
    let target = std::path::PathBuf::from("/elsewhere/real.conflist");
    observed.conflist = At::File(ConfText { contents: b"{".into(), mode: 0o640, target: target.clone() });
    let plan = plan_of(&observed, &written(&text), true, true);
    let writing = writing(&plan);
    assert_eq!((writing.mode, &writing.target, writing.found.as_deref()), (0o640, &target, Some(&b"{"[..])));
}

#[test]
fn what_nobody_else_touched_is_written_anew_as_a_whole() {
    let (mut observed, text) = complete();
    observed.chain[1].answer = Answer::Missing;
    let plan = plan_of(&observed, &written(&text), true, true);
    let chain = [Entry::main()];
    let versions = ALL.iter().map(|text| text.parse().unwrap()).collect();
    assert_eq!(writing(&plan).contents, conflist::text(&conflist::wanted(&chain, &versions)));
}

#[test]
fn while_the_record_cannot_be_read_what_is_there_of_ours_stays_as_it_is() {
    let record = Record::default();
    let planned = |observed: &Observed| {
        let (settings, decision) = (settings(), decision(true));
        plan(Facts { settings: &settings, observed, record: &record, remembers: false, now: NOW }, &decision, true)
    };
    // An earlier wish of ours: by itself it looks like somebody's addition.
    let (mut observed, text) = complete();
    observed.conflist = conf(&text.replace("portmap", "bandwidth"));
    let stays = planned(&observed);
    assert!(stays.steps.is_empty() && stays.conflist == Conflist::InPlace, "{:?}", stays.steps);
    observed.conflist = At::Nothing;
    assert_eq!(planned(&observed).steps.len(), 1, "without one no pod starts");
}

#[test]
fn files_before_ours_are_reported() {
    let (mut observed, _) = complete();
    let malformed = Contents::Malformed("EOF".into());
    observed
        .conf_files
        .insert(0, ConfFile { name: "00-broken.conf".into(), contents: malformed, called: Gives::Others });
    let cilium = Contents::Plugins(vec!["cilium-cni".into()]);
    observed
        .conf_files
        .insert(1, ConfFile { name: "05-cilium.conflist".into(), contents: cilium, called: Gives::Others });
    let after = Contents::Plugins(vec!["bridge".into()]);
    observed.conf_files.push(ConfFile { name: "87-podman.conflist".into(), contents: after, called: Gives::Others });
    assert_eq!(planned(&observed, true), (vec![], vec!["malformed-before", "sorts-before"], Conflist::InPlace));
    // Some write it among networks. The runtime has no use for the second that it can use.
    let loopback = Contents::Plugins(vec!["loopback".into()]);
    observed
        .conf_files
        .insert(1, ConfFile { name: "01-loopback.conf".into(), contents: loopback, called: Gives::Others });
    let before: Vec<String> = before_ours(&observed).skip(1).map(|note| note.to_string()).collect();
    assert_eq!(
        before,
        [
            "01-loopback.conf sorts before ours: the runtime uses that one, which gives pods a loopback link and no network",
            "05-cilium.conflist sorts before ours, too",
        ]
    );
    observed.conf_files.remove(1);
    // The runtime has what it looks for before it gets there.
    let refused = Contents::Refused(vec!["bridge".into()], "it has no name".into());
    observed
        .conf_files
        .insert(2, ConfFile { name: "05-refused.conflist".into(), contents: refused, called: Gives::Others });
    assert_eq!(planned(&observed, true), (vec![], vec!["malformed-before", "sorts-before"], Conflist::InPlace));
}

#[test]
fn plugins_without_a_binary_are_told_of_the_configuration_that_names_them_alone() {
    let (mut observed, _) = complete();
    for (at, name) in ["00-lacks.conflist", "01-sound.conflist"].into_iter().enumerate() {
        let contents = Contents::Plugins(vec!["bridge".into()]);
        observed.conf_files.insert(at, ConfFile { name: name.into(), contents, called: Gives::Others });
    }
    observed.missing_before = [("00-lacks.conflist".into(), vec!["bridge".into()])].into();
    let told = |observed: &Observed| before_ours(observed).map(|note| note.to_string()).collect::<Vec<_>>();
    let notes = told(&observed);
    let wanted = [
        "00-lacks.conflist sorts before ours: the runtime uses that one, although it names plugins without a binary: bridge",
        "01-sound.conflist sorts before ours, too: CRI-O uses that one, for what comes before lacks plugins",
    ];
    assert_eq!(notes, wanted);
    // CRI-O passes over both and comes to the third.
    let contents = Contents::Plugins(vec!["loopback".into()]);
    let loopback = ConfFile { name: "01-loopback.conf".into(), contents, called: Gives::Others };
    observed.conf_files.insert(1, loopback);
    observed.missing_before.insert("01-loopback.conf".into(), vec!["loopback".into()]);
    let lacks = "01-loopback.conf sorts before ours, too, which gives pods a loopback link and no network, and names plugins \
                 without a binary: loopback";
    assert_eq!(told(&observed), [wanted[0], lacks, wanted[1]]);
}

#[test]
fn plugins_are_looked_for_up_to_the_configuration_that_has_all() {
    let directory = tempfile::tempdir().unwrap();
    let settings = fixture::settings_in(directory.path());
    std::fs::create_dir_all(&settings.cni_bin_dir).unwrap();
    std::fs::write(settings.cni_bin_dir.join("bridge"), "").unwrap();
    let files = [
        ("00-a.conflist", &["bridge", "gone"][..]),
        ("01-loopback.conf", &["loopback"]),
        ("02-sound.conflist", &["bridge"]),
        ("03-behind.conflist", &["gone"]),
    ];
    let files = files.map(|(name, kinds)| {
        let contents = Contents::Plugins(kinds.iter().map(|kind| (*kind).to_owned()).collect());
        ConfFile { name: name.into(), contents, called: Gives::Others }
    });
    let (record, answers) = (Record::default(), crate::Answers::waited_for());
    let scope = crate::observed::Scope { install: true, alone: false, record: &record, answers: &answers };
    let found = Observed::look(&settings, files.into(), scope).missing_before;
    let lacking = [("00-a.conflist", "gone"), ("01-loopback.conf", "loopback")];
    assert_eq!(found, lacking.map(|(file, kind)| (file.to_owned(), vec![kind.to_owned()])).into());
}

#[test]
fn what_is_not_in_the_settings_is_not_asked() {
    let directory = tempfile::tempdir().unwrap();
    let asked = |chain: &str| {
        let settings = Settings { chain: Entry::list(chain).unwrap(), ..fixture::settings_in(directory.path()) };
        std::fs::create_dir_all(&settings.source_dir).unwrap();
        std::fs::write(settings.source_dir.join("vcn-native"), "").unwrap();
        let record = Record::default();
        let scope = crate::observed::Scope {
            install: true,
            alone: false,
            record: &record,
            answers: &crate::Answers::waited_for(),
        };
        let chain = Observed::look(&settings, vec![], scope).chain;
        chain.into_iter().map(|binary| binary.name).collect::<Vec<_>>()
    };
    assert_eq!(asked("portmap,vnic-attach"), ["vcn-native", "portmap", "vnic-attach"]);
    assert_eq!(asked(""), ["vcn-native"]);
}

#[test]
fn a_node_left_to_okes_cni_without_a_configuration_is_noted() {
    let file = |name: &str, contents| ConfFile { name: name.into(), contents, called: Gives::Others };
    let plugins = |kinds: &[&str]| Contents::Plugins(kinds.iter().map(|kind| (*kind).to_owned()).collect());
    let noted = |files: Vec<ConfFile>, decision: &Decision| {
        let observed = Observed::of(files);
        let (settings, record) = (settings(), Record::default());
        let facts = Facts { settings: &settings, observed: &observed, record: &record, remembers: true, now: NOW };
        let notes = plan(facts, decision, true).notes;
        notes.iter().any(|note| matches!(note, Note::NoneThere { .. }))
    };
    let oke = Decision { oke: true, decided_by: Signal::OkeDaemonSet, ..decision(false) };
    assert!(noted(vec![], &oke));
    assert!(noted(vec![file("99-loopback.conf", plugins(&["loopback"]))], &oke), "no network");
    assert!(noted(vec![file("10-oci.conflist", Contents::Malformed("{".into()))], &oke));
    for there in [plugins(&["oci-ipvlan"]), plugins(&["multus"]), Contents::Unread("a link".into())] {
        assert!(!noted(vec![file("10-oci.conflist", there.clone())], &oke), "{there:?}");
    }
    assert!(!noted(vec![], &decision(false)), "nothing shows OKE's CNI");
}
