//! Recorded evidence and its verdict: each folder of `golden` is a case. `UPDATE_GOLDEN=1` writes the verdicts.

use std::fs;

use super::diagnose;
use crate::probe::{Evidence, ProbeReport, Tally, Trial};
use crate::verdict::Label;
use crate::{Cause, Place, golden};

fn cases() -> Vec<(String, Evidence, String)> {
    let mut folders: Vec<_> = fs::read_dir(golden::folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    let read = |folder: std::path::PathBuf| {
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        (name, golden::evidence(&folder), fs::read_to_string(folder.join("verdict.txt")).unwrap_or_default())
    };
    folders.into_iter().map(read).collect()
}

#[test]
fn recorded_evidence_has_its_verdict() {
    for (name, evidence, verdict) in cases() {
        let found = diagnose(&evidence).to_string();
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(golden::folder().join(name).join("verdict.txt"), found).unwrap();
        } else {
            assert_eq!(found, verdict, "{name}");
        }
    }
}

#[test]
fn path_has_the_links_and_the_next_hop_that_are_known() {
    for (case, path) in [
        ("the_targets_firewall_drops", "10.0.10.2 (ens3) → 10.0.10.1 → 10.0.20.3 (ens3)"),
        ("a_security_list_drops_one_port", "10.0.10.2 (ens3) → 10.0.10.1 → 10.0.20.3"),
        ("the_targets_name_has_no_address", ""),
    ] {
        let evidence = cases().into_iter().find(|(name, ..)| name == case).unwrap().1;
        assert_eq!(crate::path(&evidence), path);
    }
}

#[test]
fn every_cause_is_named_by_a_recorded_case() {
    let named: Vec<Cause> = cases().iter().flat_map(|(_, evidence, _)| diagnose(evidence).causes).collect();
    let missing: Vec<_> = Cause::ALL.iter().filter(|cause| !named.contains(cause)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// A verdict is only "proven" by the traces that prove it: without the taps and trials, none is left.
#[test]
fn no_network_cause_is_proven_without_taps_and_trials() {
    for (name, mut evidence, _) in cases() {
        evidence.trials.clear();
        evidence.arrival = None;
        let verdict = diagnose(&evidence);
        let is_network = verdict.place == Place::Network;
        assert!(verdict.label != Label::Proven || !is_network, "{name}: {verdict}");
    }
}

/// What a host shows proves its cause only together with a trial that passes without it.
#[test]
fn cause_that_a_host_shows_is_likely_if_all_trials_fail_or_none_was_made() {
    for (name, evidence, _) in cases() {
        let proven = |trials| {
            let evidence = Evidence { trials, ..evidence.clone() };
            diagnose(&evidence).label == Label::Proven && super::avoiding(&evidence).is_some_and(|all| !all.is_empty())
        };
        let failing = |trial: &Trial| Trial::new(trial.change, Tally { sent: 5, ..Tally::default() });
        assert!(!proven(evidence.trials.iter().map(failing).collect()) && !proven(Vec::new()), "{name}");
    }
}

/// A generator of numbers, the same in each run (Knuth's MMIX).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most.max(1)
    }
}

/// A host that is busy with other things: counters rise, tables are anything but full or nearly so.
fn busy(numbers: &mut Numbers, report: &mut ProbeReport) {
    let before = &mut report.before;
    before.rp_filter = Some(u8::try_from(numbers.below(3)).unwrap());
    before.rp_filter_drops = Some(numbers.below(1_000_000));
    before.neighbour_limit = Some(1024);
    before.neighbours = Some(numbers.below(1100));
    before.neighbour_overflows = Some(numbers.below(50));
    before.connection_limit = Some(262_144);
    before.connections = Some(numbers.below(262_145));
    before.connection_drops = Some(numbers.below(1000));
    before.insert_failures = Some(numbers.below(1000));
    report.after = report.before;
    let rise = |counter: &mut Option<u64>, by: u64| *counter = counter.map(|count| count + by);
    rise(&mut report.after.rp_filter_drops, numbers.below(100));
    rise(&mut report.after.neighbour_overflows, numbers.below(3));
    rise(&mut report.after.connection_drops, numbers.below(100));
    rise(&mut report.after.insert_failures, numbers.below(100));
}

/// Counters of a busy host next to a loss that they do not explain: a cause of a host is not proven by them.
#[test]
fn noise_next_to_a_security_list_proves_no_host_cause() {
    let case = cases().into_iter().find(|(name, ..)| name == "a_security_list_drops_one_port").unwrap().1;
    let mut numbers = Numbers(7);
    for _ in 0..1000 {
        let mut evidence = case.clone();
        busy(&mut numbers, &mut evidence.attempt);
        busy(&mut numbers, evidence.arrival.as_mut().unwrap());
        assert_eq!(diagnose(&evidence).causes, [Cause::SecurityList]);
    }
}
