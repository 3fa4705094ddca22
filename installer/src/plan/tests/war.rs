//! Somebody undoes what we write.

use super::*;

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn plan_at(observed: &Observed, record: &Record, now: SystemTime) -> Plan {
    plan(Facts { settings: &settings(), observed, record, remembers: true, now }, &decision(true), true)
}

#[test]
fn undoing_is_told_from_never_having_been_there() {
    let (mut observed, text) = complete();
    observed.conf_files.clear();
    observed.conflist = At::Nothing;
    assert_eq!(writing(&plan_of(&observed, &Record::default(), true, true)).disturbed, Vec::<String>::new());
    let plan = plan_of(&observed, &written(&text), true, true);
    assert_eq!(writing(&plan).disturbed, ["it was removed"]);
    assert_eq!(plan.steps[0].to_string(), "install /node/net.d/05-vcn-native.conflist (it was removed)");
    observed.conflist = conf("{");
    let plan = plan_of(&observed, &written(&text), true, true);
    assert_eq!(writing(&plan).disturbed, ["it was made what is no list of plugins"]);
}

#[test]
fn after_too_many_repairs_it_rests_and_names_the_difference() {
    let (mut observed, text) = complete();
    observed.conflist = conf(r#"{"cniVersion":"1.0.0","name":"vcn-native","plugins":[{"type":"cilium-cni"}]}"#);
    let mut record = written(&text);
    let known = record.configurations.get_mut(vcn::CONFLIST_FILE).unwrap();
    (0..5).for_each(|fight| known.fights.fought(at(100 + fight)));
    let plan = plan_at(&observed, &record, at(110));
    assert_eq!((plan.steps.len(), plan.conflist), (0, Conflist::Pending), "pods of this node are in trouble");
    let failure = plan.failures.first().unwrap();
    assert_eq!(failure.word(), "contention");
    let message = failure.to_string();
    for part in ["5 times within 600 s", "rests for 54 s", "plugin vcn-native was removed", "05-vcn-native.conflist"] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(plan_at(&observed, &record, at(164)).steps.len(), 1, "and is tried again then");

    // While our plugin is in it, pods have a network, and there is no hurry.
    observed.conflist = conf(&text.replace("portmap", "portmop"));
    let plan = plan_at(&observed, &record, at(164));
    assert_eq!((plan.steps.len(), plan.conflist), (0, Conflist::InPlace));
    assert!(plan.failures.first().unwrap().to_string().contains("rests for 536 s"), "{:?}", plan.failures);
    assert_eq!(plan_at(&observed, &record, at(700)).steps.len(), 1);
}

#[test]
fn what_is_no_undoing_is_written_even_then() {
    let (mut observed, text) = complete();
    let mut record = written(&text);
    let known = record.configurations.get_mut(vcn::CONFLIST_FILE).unwrap();
    (0..9).for_each(|fight| known.fights.fought(at(100 + fight)));
    observed.chain[1].answer = Answer::Missing;
    let plan = plan_at(&observed, &record, at(110));
    assert!(writing(&plan).disturbed.is_empty() && plan.failures.is_empty());
}

#[test]
fn a_binary_that_somebody_replaces_again_and_again_rests_and_one_that_is_gone_never_does() {
    let (mut observed, _) = complete();
    let mut record = Record::default();
    let known = record.binaries.entry("vcn-native".to_owned()).or_default();
    known.digest = Some(Digest::of(b"plugin").to_string());
    (0..5).for_each(|fight| known.fights.fought(at(100 + fight)));
    observed.binaries[0].found = Found::File { digest: Digest::of(b"theirs"), mode: BINARY_MODE };
    let plan = plan_at(&observed, &record, at(110));
    assert_eq!((plan.steps.len(), plan.failures.len()), (0, 1));
    let message = plan.failures[0].to_string();
    for part in ["/node/bin/vcn-native", "5 times within 600 s", "rests for 590 s", "replaced by another file"] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(plan_at(&observed, &record, at(700)).steps.len(), 1, "and is put back then");
    observed.binaries[0].found = Found::Nothing;
    assert_eq!(plan_at(&observed, &record, at(110)).steps.len(), 1);
    // Another release's, which we have not put there yet.
    observed.binaries[0].digest = Digest::of(b"newer");
    observed.binaries[0].found = Found::File { digest: Digest::of(b"theirs"), mode: BINARY_MODE };
    assert_eq!(plan_at(&observed, &record, at(110)).steps.len(), 1);
}

#[test]
fn a_binary_whose_mode_somebody_changes_again_and_again_rests_too() {
    let (mut observed, _) = complete();
    let mut record = Record::default();
    let known = record.binaries.entry("vcn-native".to_owned()).or_default();
    known.digest = Some(Digest::of(b"plugin").to_string());
    (0..5).for_each(|fight| known.fights.fought(at(100 + fight)));
    let mut rests = |mode, now| {
        observed.binaries[0].found = Found::File { digest: Digest::of(b"plugin"), mode };
        let plan = plan_at(&observed, &record, now);
        match &plan.failures[..] {
            [] => Err(plan.steps.iter().map(Step::to_string).collect::<Vec<_>>()),
            [rests] => Ok(rests.to_string()),
            more => panic!("{more:?}"),
        }
    };
    let told = rests(0o644, at(110)).unwrap();
    assert!(told.contains("rests for 54 s: its mode was made 0644;"), "no pod starts: {told}");
    assert_eq!(rests(0o644, at(164)), Err(vec!["chmod 0755 /node/bin/vcn-native (was 0644)".to_owned()]));
    let told = rests(0o700, at(164)).unwrap();
    assert!(told.contains("rests for 536 s: its mode was made 0700;"), "root executes it all the same: {told}");
}

/// Killed before what it had remembered came to its place.
fn pending(before: Option<&str>, wanted: &str) -> Record {
    let mut record = before.map_or_else(Record::default, written);
    let known = record.configurations.entry(vcn::CONFLIST_FILE.to_owned()).or_default();
    known.begin(before.map(str::as_bytes), wanted, &serde_json::from_str(wanted).unwrap());
    record
}

#[test]
fn what_we_were_killed_over_is_nobodys_undoing() {
    let (mut observed, text) = complete();
    observed.conflist = At::Nothing;
    observed.conf_files.clear();
    let plan = plan_of(&observed, &pending(None, &text), true, true);
    assert_eq!((writing(&plan).contents.as_str(), writing(&plan).disturbed.len()), (text.as_str(), 0));
    // What we wanted before, to the byte: it becomes what we want now, whole.
    let chain = [Entry::main().with("mtu", 1500), Entry::list("bandwidth").unwrap().remove(0)];
    let versions = ["1.0.0"].iter().map(|text| text.parse().unwrap()).collect();
    let before = conflist::text(&conflist::wanted(&chain, &versions));
    observed.conflist = conf(&before);
    observed.chain.push(member("bandwidth", &ALL, Whose::Others));
    let plan = plan_of(&observed, &pending(Some(&before), &text), true, true);
    assert_eq!((writing(&plan).contents.as_str(), writing(&plan).disturbed.len()), (text.as_str(), 0));
    assert_eq!(plan.notes, []);
    // Once it was in place, it is somebody's doing, and ours to undo as well.
    let mut settled = pending(Some(&before), &text);
    assert!(settled.configurations.get_mut(vcn::CONFLIST_FILE).unwrap().settle());
    let plan = plan_of(&observed, &settled, true, true);
    assert_eq!(
        (writing(&plan).contents.as_str(), &writing(&plan).disturbed[..]),
        (text.as_str(), &["it was changed".to_owned()][..])
    );
}

#[test]
fn a_configuration_that_came_to_its_place_before_the_kill_is_known_to_have() {
    let (observed, text) = complete();
    let record = pending(Some("{}"), &text);
    let plan = plan_of(&observed, &record, true, true);
    assert_eq!((plan.steps.len(), plan.adopted.map(|(text, _)| text)), (0, Some(text)));
}
