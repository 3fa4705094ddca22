//! Comparisons with files in place of the kernel's settings.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use installer::PolicyMark;
use tempfile::TempDir;
use tunables::DocumentMode;

use super::*;
use crate::fixture;
use crate::node_policy::plan::tests::document;

struct Kernel {
    directory: TempDir,
    boot: BootId,
}

impl Kernel {
    fn new() -> Self {
        let kernel = Self { directory: tempfile::tempdir().unwrap(), boot: BootId::from_text("this") };
        fs::create_dir_all(kernel.path("proc/vm")).unwrap();
        kernel.write("60");
        kernel
    }

    fn path(&self, below: &str) -> PathBuf {
        self.directory.path().join(below)
    }

    fn write(&self, value: &str) {
        fs::write(self.path("proc/vm/swappiness"), format!("{value}\n")).unwrap();
    }

    fn value(&self) -> String {
        fs::read_to_string(self.path("proc/vm/swappiness")).unwrap().trim().to_owned()
    }

    fn applier(&self) -> Applier {
        let [sysctls, host, data] = ["proc", "", "lib"].map(|below| self.path(below).display().to_string());
        let settings = fixture::settings(&["--sysctl-root", &sysctls, "--host-root", &host, "--data-dir", &data]);
        Applier::new(Arc::new(settings), self.boot.clone())
    }

    fn record(&self) -> Vec<PolicySetting> {
        policy_settings(&self.path("lib"), &self.boot).unwrap()
    }
}

fn swappiness(mode: DocumentMode) -> NodeDocument {
    document(&[("vm.swappiness", "10", mode)])
}

/// The document has just come, and the leader with it.
fn new(now: Instant) -> Moment {
    Moment { is_new: true, contact: Some(now), now }
}

fn states(outcome: &Outcome) -> Vec<ItemState> {
    outcome.reports.iter().map(|report| report.state).collect()
}

#[test]
fn other_writer_is_named_after_three_set_backs() {
    let kernel = Kernel::new();
    fs::create_dir_all(kernel.path("sys/fs/cgroup/system.slice/tuned.service")).unwrap();
    let (mut applier, sent, start) = (kernel.applier(), swappiness(DocumentMode::Apply), Instant::now());
    let minute = |minute: u64| start + Duration::from_mins(minute);
    assert_eq!(applier.compare(&sent, new(minute(0))).in_sync, 1);
    for number in 1..=3 {
        kernel.write("30");
        let outcome = applier.compare(&sent, new(minute(number)));
        assert_eq!(outcome.changes, [AppliedChange { action: "set_back", succeeded: true }]);
        assert_eq!(kernel.value(), "10");
    }
    for number in [4, 5, 63] {
        kernel.write("30");
        let outcome = applier.compare(&sent, new(minute(number)));
        assert_eq!((states(&outcome), kernel.value().as_str()), (vec![ItemState::Reverted], "30"), "minute {number}");
        assert!(outcome.reports[0].message.starts_with("likely writer: TuneD; "), "{:?}", outcome.reports);
    }
    assert_eq!((applier.compare(&sent, new(minute(64))).in_sync, kernel.value().as_str()), (1, "10"));
    // What was there before the policy comes back, not what the other program set.
    applier.compare(&document(&[]), new(minute(65)));
    assert_eq!((kernel.value().as_str(), kernel.record().len()), ("60", 0));
}

#[test]
fn kill_between_note_and_change_loses_no_earlier_value() {
    let (kernel, now) = (Kernel::new(), Instant::now());
    let previous = Some("60".to_owned());
    let mark = PolicyMark {
        policy: "u0".into(),
        cluster: "c".into(),
        requested: "10".into(),
        previous,
        ..PolicyMark::default()
    };
    let note = PolicySetting { key: "vm/swappiness".into(), before: "60".into(), set: "10".into(), mark };
    // Noted and not set: the next agent sets it, or forgets it.
    note_policy_settings(&kernel.path("lib"), &kernel.boot, std::slice::from_ref(&note)).unwrap();
    let outcome = kernel.applier().compare(&swappiness(DocumentMode::Apply), new(now));
    assert_eq!(outcome.changes, [AppliedChange { action: "set", succeeded: true }]);
    assert_eq!((kernel.value().as_str(), kernel.record()), ("10", vec![note.clone()]));
    kernel.write("60");
    kernel.applier().compare(&document(&[]), new(now));
    assert_eq!((kernel.value().as_str(), kernel.record().len()), ("60", 0));
    // Restored and not forgotten.
    note_policy_settings(&kernel.path("lib"), &kernel.boot, &[note]).unwrap();
    let outcome = kernel.applier().compare(&document(&[]), new(now));
    assert_eq!((outcome.changes.len(), kernel.record().len()), (0, 0));
}

#[test]
fn nothing_is_set_before_it_is_noted() {
    let kernel = Kernel::new();
    fs::write(kernel.path("lib"), "in the way").unwrap();
    let outcome = kernel.applier().compare(&swappiness(DocumentMode::Apply), new(Instant::now()));
    assert_eq!((states(&outcome), kernel.value().as_str()), (vec![ItemState::Failed], "60"));
    assert!(outcome.record_error.is_some());
}

#[test]
fn damaged_record_leaves_values_and_is_reported() {
    let kernel = Kernel::new();
    kernel.applier().compare(&swappiness(DocumentMode::Apply), new(Instant::now()));
    fs::write(kernel.path("lib/sysctls.json"), "{").unwrap();
    let outcome = kernel.applier().compare(&document(&[]), new(Instant::now()));
    assert_eq!((kernel.value().as_str(), outcome.record_error.is_some()), ("10", true));
}

#[test]
fn value_that_the_kernel_keeps_fails_and_is_retried_later() {
    let kernel = Kernel::new();
    // Accepts everything and has nothing.
    fs::remove_file(kernel.path("proc/vm/swappiness")).unwrap();
    std::os::unix::fs::symlink("/dev/null", kernel.path("proc/vm/swappiness")).unwrap();
    let (mut applier, sent, now) = (kernel.applier(), swappiness(DocumentMode::Apply), Instant::now());
    let tries = |minutes: u64, applier: &mut Applier| {
        let outcome = applier.compare(&sent, new(now + Duration::from_mins(minutes)));
        assert_eq!(states(&outcome), [ItemState::Failed]);
        outcome.changes.len()
    };
    let [first, at_once, later] = [0, 0, 3].map(|minutes| tries(minutes, &mut applier));
    assert_eq!((first, at_once, later), (1, 0, 1));
}

#[test]
fn policy_that_takes_an_item_over_owns_it() {
    let (kernel, now) = (Kernel::new(), Instant::now());
    let mut applier = kernel.applier();
    applier.compare(&swappiness(DocumentMode::Apply), new(now));
    let mut other = swappiness(DocumentMode::Apply);
    other.policies[0].uid = "other".to_owned();
    applier.compare(&other, new(now));
    assert_eq!(kernel.record()[0].mark.policy, "other");
    // The first one is kept, which says nothing about an item that is the second one's.
    let mut kept = document(&[("vm.dirty_ratio", "1", DocumentMode::Keep)]);
    applier.compare(&kept, new(now));
    assert_eq!(kernel.value(), "60");
    applier.compare(&swappiness(DocumentMode::Apply), new(now));
    kept.policies[0].uid = "u0".to_owned();
    applier.compare(&kept, new(now));
    applier.compare(&document(&[]), new(now));
    assert_eq!(kernel.value(), "10");
}

#[test]
fn value_is_withdrawn_without_the_leader_and_tried_three_times() {
    let kernel = Kernel::new();
    let (mut applier, mut sent, start) = (kernel.applier(), swappiness(DocumentMode::Apply), Instant::now());
    sent.policies[0].revision = "a".to_owned();
    let at = |seconds: u64| start + Duration::from_secs(seconds);
    let moment = |is_new: bool, contact: u64, now: u64| Moment { is_new, contact: Some(at(contact)), now: at(now) };
    // The document, the leader right afterwards, which is too early, and no more of it.
    for (is_new, contact, now) in [(true, 0, 0), (false, 4, 10), (false, 4, 119)] {
        let outcome = applier.compare(&sent, moment(is_new, contact, now));
        assert_eq!((kernel.value().as_str(), outcome.in_sync, outcome.on_trial.len()), ("10", 1, 1), "{now}");
    }
    for (contact, now, value) in [
        (4, 121, "60"),
        (4, 125, "60"),
        // It comes back, and is silent again: the second and the third time.
        (200, 200, "10"),
        (200, 330, "60"),
        (400, 400, "10"),
        (400, 530, "60"),
        (600, 600, "60"),
        (601, 606, "60"),
    ] {
        let outcome = applier.compare(&sent, moment(false, contact, now));
        assert_eq!(kernel.value(), value, "{now}");
        let expected = if value == "60" { vec![ItemState::Unconfirmed] } else { Vec::new() };
        assert_eq!(states(&outcome), expected, "{now}");
    }
    assert_eq!(states(&applier.compare(&sent, moment(true, 700, 700))), [ItemState::Unconfirmed], "the same revision");
    sent.policies[0].revision = "b".to_owned();
    assert_eq!(states(&applier.compare(&sent, moment(true, 701, 701))), []);
    let outcome = applier.compare(&sent, moment(false, 706, 707));
    assert_eq!((outcome.on_trial.len(), kernel.value().as_str()), (0, "10"), "confirmed");
    assert_eq!((states(&applier.compare(&sent, moment(false, 706, 2000))), kernel.value().as_str()), (vec![], "10"));
}

#[test]
fn agent_that_ended_on_trial_withdraws_and_only_proven_values_are_set_at_start() {
    let mut kernel = Kernel::new();
    let (sent, now) = (swappiness(DocumentMode::Apply), Instant::now());
    let start = Moment { is_new: false, contact: None, now };
    kernel.applier().compare(&sent, new(now));
    assert_eq!(kernel.value(), "10");
    let outcome = kernel.applier().compare(&sent, start);
    assert_eq!((states(&outcome), kernel.value().as_str()), (vec![ItemState::Unconfirmed], "60"));
    // The kernel rounded it, and the agent was killed before it noted that.
    kernel.applier().compare(&sent, new(now));
    kernel.write("12");
    kernel.applier().compare(&sent, start);
    assert_eq!(kernel.value(), "60");
    // Not tried in this document's time, as after a mount was added.
    let other = document(&[("vm.swappiness", "20", DocumentMode::Apply)]);
    assert_eq!(states(&kernel.applier().compare(&other, start)), [ItemState::Drifted]);
    assert_eq!(kernel.value(), "60");
    // Confirmed, and then a reboot.
    let mut applier = kernel.applier();
    applier.compare(&sent, new(now));
    let later = now + Duration::from_secs(10);
    applier.compare(&sent, Moment { is_new: false, contact: Some(later), now: later });
    kernel.boot = BootId::from_text("next");
    kernel.write("60");
    let outcome = kernel.applier().compare(&sent, start);
    assert_eq!((outcome.in_sync, outcome.on_trial.len(), kernel.value().as_str()), (1, 0, "10"));
    // On another instance nothing is proven.
    kernel.boot = BootId::from_text("of a copied disk");
    kernel.write("60");
    let copied = NodeDocument { instance: Some("other".to_owned()), ..sent };
    assert_eq!(states(&kernel.applier().compare(&copied, start)), [ItemState::Drifted]);
    assert_eq!(kernel.value(), "60");
}

#[test]
fn value_that_would_harm_this_node_is_refused_and_an_earlier_one_restored() {
    let kernel = Kernel::new();
    let file = kernel.path("proc/vm/min_free_kbytes");
    fs::write(&file, "60000\n").unwrap();
    let sent = |value: &str| document(&[("vm.min_free_kbytes", value, DocumentMode::Apply)]);
    let mut applier = kernel.applier();
    applier.compare(&sent("70000"), new(Instant::now()));
    assert_eq!(fs::read_to_string(&file).unwrap(), "70000");
    let outcome = applier.compare(&sent("2000000000"), new(Instant::now()));
    assert_eq!((states(&outcome), fs::read_to_string(&file).unwrap().as_str()), (vec![ItemState::Refused], "60000"));
}
