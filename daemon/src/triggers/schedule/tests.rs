//! When a reconcile is due, and when a conflict is reported.

use super::*;
use crate::facts::reconcile_report::Changed;

fn report(cause: Cause, changes: Vec<Changed>) -> ReconcileReport {
    ReconcileReport {
        cause,
        unix_millis: 0,
        micros: 0,
        changes,
        conditions: Vec::new(),
        vnics: Vec::new(),
        machine: None,
        usable: true,
        pod_network: None,
    }
}

fn repair(cause: Cause) -> ReconcileReport {
    report(cause, vec![Changed::new("rule", "rule add pref 512 from all lookup 999")])
}

/// Notes reports, `apart` from each other. Returns the debounce in milliseconds after each, and whether a conflict is reported.
fn noted(
    schedule: &mut Schedule,
    now: &mut Instant,
    reports: Vec<ReconcileReport>,
    apart: Duration,
) -> Vec<(u128, bool)> {
    let note = |report: ReconcileReport| {
        *now += apart;
        let is_conflict = schedule.note(&report, *now).is_some();
        (schedule.debounce(*now).as_millis(), is_conflict)
    };
    reports.into_iter().map(note).collect()
}

#[test]
fn repairs_in_close_succession_are_a_conflict_with_bounded_debounce() {
    let mut now = Instant::now();
    let mut schedule = Schedule::new(now);
    let repairs = std::iter::repeat_with(|| repair(Cause::Kernel)).take(12).collect();
    let noted_repairs = noted(&mut schedule, &mut now, repairs, CONFLICT / 2);
    assert_eq!(
        noted_repairs.iter().map(|(_, is_conflict)| *is_conflict).collect::<Vec<_>>(),
        [[false; 9].as_slice(), &[true; 3]].concat()
    );
    assert_eq!(noted_repairs[..5].iter().map(|(debounce, _)| *debounce).collect::<Vec<_>>(), [50, 100, 200, 400, 400]);
    schedule.plan(&repair(Cause::Timer), Duration::from_secs(60), now, 1.0);
    assert_eq!(schedule.next, now + CONFLICT, "the condition ends with the conflict");
    assert_eq!(schedule.debounce(now + CONFLICT).as_millis(), 50, "the last repair was not reverted");
    let repairs = std::iter::repeat_with(|| repair(Cause::Sources)).take(20).collect();
    assert!(noted(&mut schedule, &mut now, repairs, CONFLICT).iter().all(|noted| *noted == (50, false)));
}

#[test]
fn events_in_close_succession_are_gathered_longer_until_they_end() {
    let mut now = Instant::now();
    let mut schedule = Schedule::new(now);
    let events = std::iter::repeat_with(|| report(Cause::Kernel, Vec::new())).take(9).collect();
    let debounces = noted(&mut schedule, &mut now, events, STREAM / 2);
    assert_eq!(debounces, [50, 50, 50, 50, 50, 100, 200, 400, 400].map(|debounce| (debounce, false)));
    assert_eq!(schedule.debounce(now + STREAM).as_millis(), 50);
}

#[test]
fn reconcile_for_kernel_events_delays_neither_retry_nor_resync() {
    let (begun, resync) = (Instant::now(), Duration::from_secs(60));
    let mut schedule = Schedule::new(begun);
    let failed = |cause| {
        let conditions = vec![Condition::degraded(Reason::HostNetworkFailed, "busy")];
        ReconcileReport { conditions, ..report(cause, Vec::new()) }
    };
    let mut planned = |report: &ReconcileReport, second| {
        schedule.plan(report, resync, begun + Duration::from_secs(second), 1.0);
        (schedule.cause(), (schedule.next - begun).as_secs())
    };
    assert_eq!(planned(&report(Cause::Start, Vec::new()), 0), (Cause::Timer, 60));
    assert_eq!(planned(&report(Cause::Kernel, Vec::new()), 10), (Cause::Timer, 60));
    assert_eq!(planned(&failed(Cause::Kernel), 20), (Cause::Retry, 21));
    assert_eq!(planned(&failed(Cause::Kernel), 20), (Cause::Retry, 21));
    assert_eq!(planned(&failed(Cause::Retry), 21), (Cause::Retry, 23));
    assert_eq!(planned(&report(Cause::Kernel, Vec::new()), 22), (Cause::Timer, 82));
}
