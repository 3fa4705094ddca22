//! What a summary has, keeps and leaves out.

use super::*;
use crate::report::SignalState;

fn state(signal: &str, verdict: Verdict) -> SignalState {
    SignalState { verdict, ..SignalState::blank(collectors::signal(signal).unwrap(), 60, 1000) }
}

#[test]
fn summary_has_counts_and_what_is_not_healthy() {
    let signals = vec![
        state("pids", Verdict::Healthy),
        state("tcp_retransmits", Verdict::Unknown),
        SignalState { severity: Some(Severity::Critical), ..state("conntrack_use", Verdict::Problem) },
    ];
    let summary = Summary::default().with(&Report { signals, ..Report::default() }).bounded();
    assert_eq!((summary.counts.problem, summary.counts.unknown, summary.counts.healthy), (1, 1, 1));
    let names: Vec<_> = summary.checks.iter().map(|check| check.name.as_str()).collect();
    assert_eq!(names, ["conntrack_use", "tcp_retransmits"]);
    assert_eq!((summary.worst(Area::Network), summary.worst(Area::Host)), (Some(Severity::Critical), None));
}

#[test]
fn longest_summary_keeps_the_worst_within_the_bound() {
    let check = |number: u32, severity| Check {
        name: format!("check-{number}"),
        subject: None,
        area: Area::Host,
        verdict: Verdict::Problem,
        severity,
        action: Action::Report,
        message: "ü".repeat(5000),
        devices: Vec::new(),
        since_unix_millis: 1,
        not_measured: None,
    };
    let mut checks: Vec<_> = (0..50).map(|number| check(number, Severity::Warning)).collect();
    checks.push(check(99, Severity::Critical));
    let summary = Summary { checks, ..Summary::default() }.bounded();
    assert!(serde_json::to_vec(&summary).unwrap().len() <= SUMMARY_MAX);
    assert_eq!((summary.checks[0].name.as_str(), summary.checks.len() + summary.left_out), ("check-99", 51));
}

#[test]
fn etag_changes_with_states_and_not_with_messages() {
    let with = |verdict, detail: &str| {
        let state = SignalState { detail: detail.to_owned(), ..state("pids", verdict) };
        Summary::default().with(&Report { signals: vec![state], ..Report::default() }).etag()
    };
    assert_eq!(with(Verdict::Problem, "81 %"), with(Verdict::Problem, "82 %"));
    assert_ne!(with(Verdict::Problem, ""), with(Verdict::Unknown, ""));
}

#[test]
fn open_problem_is_kept_across_a_restart_until_measured_or_rebooted() {
    let summary = |started, boot: &str, states: &[SignalState]| {
        let report = Report { signals: states.to_vec(), ..Report::default() };
        let blank =
            Summary { started_unix_millis: Some(started), boot_id: Some(boot.to_owned()), ..Summary::default() };
        blank.with(&report)
    };
    let critical = SignalState { severity: Some(Severity::Critical), ..state("disk_use", Verdict::Problem) };
    let before = summary(1, "a", &[critical]);
    let worst = |summary: &Summary| summary.worst(Area::Host);
    let unknown = || SignalState { detail: "hangs".to_owned(), ..state("disk_use", Verdict::Unknown) };
    let healthy = state("disk_use", Verdict::Healthy);

    let started = summary(9, "a", &[]).keeping(&before);
    let gap = NotMeasured { since_unix_millis: 9, reason: "the agent was restarted".to_owned() };
    assert_eq!((worst(&started), &started.checks[0].not_measured), (Some(Severity::Critical), &Some(gap)));
    let hanging = summary(9, "a", &[unknown()]).keeping(&started);
    assert_eq!((worst(&hanging), hanging.checks.len()), (Some(Severity::Critical), 1), "not listed twice");
    for kept in [&started, &hanging] {
        assert_eq!((kept.counts.problem, kept.counts.unknown), (1, 0), "counted as it is listed");
    }
    assert_eq!(worst(&summary(9, "a", &[healthy]).keeping(&hanging)), None, "measured");
    assert_eq!(worst(&summary(9, "b", &[unknown()]).keeping(&hanging)), None, "another boot");
    assert_eq!(worst(&summary(1, "a", &[unknown()]).keeping(&before)), None, "the agent itself ended it");
}

#[test]
fn conditions_of_an_agent_are_kept_until_its_first_reconcile() {
    let with = |started, name: &str, verdict| {
        let check = Check {
            name: name.to_owned(),
            subject: None,
            area: Area::Network,
            verdict,
            severity: Severity::Critical,
            action: Action::Report,
            message: String::new(),
            devices: Vec::new(),
            since_unix_millis: 1,
            not_measured: None,
        };
        let boot_id = Some("a".to_owned());
        Summary { started_unix_millis: Some(started), boot_id, checks: vec![check], ..Summary::default() }
    };
    let before = with(1, "LinkMissing", Verdict::Problem);
    let starting = with(9, "Starting", Verdict::Unknown).keeping(&before);
    assert_eq!(starting.worst(Area::Network), Some(Severity::Critical));
    let reconciled = Summary { checks: Vec::new(), ..starting.clone() }.keeping(&starting);
    assert_eq!(reconciled.worst(Area::Network), None);
}

#[test]
fn later_versions_with_more_fields_are_read() {
    let text = r#"{"version": 2, "node": "a", "new": 1, "checks": []}"#;
    assert_eq!(serde_json::from_str::<Summary>(text).unwrap().node, "a");
}
