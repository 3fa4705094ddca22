//! When the next reconcile is due, and how long events are gathered before one. Pure: reports and the time are parameters.

#[cfg(test)]
mod tests;

use std::time::Duration;

use tokio::time::Instant;

use crate::facts::condition::{Condition, Reason};
use crate::facts::reconcile_report::{Cause, ReconcileReport};
use crate::sources::backoff::{DEBOUNCE, RETRY, jittered};

/// Repairs this close to each other are a conflict with a program that reverts them.
const CONFLICT: Duration = Duration::from_secs(10);

/// So many repairs in a row are not an accident.
const REVERTED: u32 = 10;

/// Reconciles for events that follow each other this closely are one stream of events.
const STREAM: Duration = Duration::from_secs(2);

/// So many reconciles of a stream are not delayed: manual changes, or a boot, are over by then.
const UNDELAYED: u32 = 4;

#[derive(Debug)]
pub(super) struct Schedule {
    /// When the next one is due, if nothing happens before.
    pub(super) next: Instant,
    /// When the hints about running pods are due.
    pub(super) hints_due: Option<Instant>,
    /// Reconciles in a row that want a retry.
    failures: u32,
    events: Streak,
    repairs: Streak,
    /// The first change of the last repair.
    last_repair: String,
}

/// How often something happened in close succession.
#[derive(Debug)]
struct Streak {
    count: u32,
    last: Option<Instant>,
    gap: Duration,
}

impl Streak {
    const fn new(gap: Duration) -> Self {
        Self { count: 0, last: None, gap }
    }

    fn note(&mut self, now: Instant) {
        self.count = self.count(now).saturating_add(1);
        self.last = Some(now);
    }

    /// How often so far; 0 once it is over.
    fn count(&self, now: Instant) -> u32 {
        self.end().filter(|end| now < *end).map_or(0, |_| self.count)
    }

    /// When it is over, if it does not happen again.
    fn end(&self) -> Option<Instant> {
        self.last.map(|last| last + self.gap)
    }
}

impl Schedule {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            next: now,
            hints_due: None,
            failures: 0,
            events: Streak::new(STREAM),
            repairs: Streak::new(CONFLICT),
            last_repair: String::new(),
        }
    }

    /// Notes a report; returns a condition while another program reverts what the agent repairs.
    pub(super) fn note(&mut self, report: &ReconcileReport, now: Instant) -> Option<Condition> {
        if matches!(report.cause, Cause::Kernel | Cause::Files) {
            self.events.note(now);
            if let Some(change) = report.changes.first() {
                self.repairs.note(now);
                self.last_repair.clone_from(&change.text);
            }
        }
        self.reverted(now)
    }

    /// Plans the next reconcile after one that ended.
    pub(super) fn plan(&mut self, report: &ReconcileReport, resync: Duration, now: Instant, chance: f64) {
        // A reconcile for kernel events retries nothing that failed, so it delays neither the next retry nor, however many there
        // are, the regular one.
        let is_same = report.wants_retry() == (self.failures > 0);
        if report.cause != Cause::Kernel || !is_same {
            self.failures = if report.wants_retry() { self.failures.saturating_add(1) } else { 0 };
            let pause = match self.failures {
                0 => jittered(resync, chance),
                failures => RETRY.delay(failures, chance).min(resync),
            };
            self.next = now + pause;
        }
        // The condition ends with the conflict.
        let end = self.repairs.end().filter(|_| self.reverted(now).is_some());
        self.next = end.map_or(self.next, |end| end.min(self.next));
    }

    /// Reconciles earlier than planned.
    pub(super) fn bring_forward(&mut self, due: Instant) {
        self.next = self.next.min(due);
    }

    /// Checks the hints about running pods at that time, or earlier if that is planned.
    pub(super) fn check_hints_by(&mut self, due: Instant) {
        self.hints_due = Some(self.hints_due.map_or(due, |planned| planned.min(due)));
    }

    /// Why the planned reconcile runs.
    pub(super) const fn cause(&self) -> Cause {
        if self.failures > 0 { Cause::Retry } else { Cause::Timer }
    }

    /// How long events are gathered before a reconcile, so that a flapping link does not cause one each time.
    pub(super) fn debounce(&self, now: Instant) -> Duration {
        let events = self.events.count(now).saturating_sub(UNDELAYED);
        DEBOUNCE.delay(self.repairs.count(now).max(events), 1.0)
    }

    fn reverted(&self, now: Instant) -> Option<Condition> {
        let count = self.repairs.count(now);
        (count >= REVERTED).then(|| {
            let message = format!(
                "repairs are reverted within seconds, {count} times in a row so far; the last one: {}",
                self.last_repair
            );
            Condition::degraded(Reason::RepairsUndone, message)
        })
    }
}
