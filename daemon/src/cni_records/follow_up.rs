//! The work after a verb that a pod need not wait for: announcing a new address to its subnet, and removing the connections of a
//! freed one. By sending its record, a plugin leaves this to the agent; if no agent listens, the plugin does it. If the agent
//! fails, the next ADD with that address removes its connections first.
//!
//! ```text
//!   records ─▶ FollowUps ─▶ run ────▶ Worker ─┬─ ADD: announce at once and 1 s later
//!                           (when)    (how)   ├─ DEL, GC: remove connections of freed addresses, many in one walk
//!                                             └─ at the end of cooldowns: remove again, mark the addresses as forgotten
//! ```

mod worker;

use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ipam::COOLDOWN;
use telemetry::VerbRecord;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::lifecycle::agent::Agent;
use worker::Worker;

/// For a neighbour that missed the first announcement (RFC 5227 §2.3: two, 2 s apart; sooner is enough).
const SECOND_ANNOUNCEMENT: Duration = Duration::from_secs(1);

/// How long freed addresses are gathered before one walk through the kernel's connections.
const GATHERING: Duration = Duration::from_millis(100);

/// The least time between two checks for ended cooldowns.
const BETWEEN_CHECKS: Duration = Duration::from_secs(5);

/// When a failed check is retried.
const RETRY: Duration = Duration::from_secs(30);

/// The most addresses at a time; a node has a few hundred.
const LONGEST: usize = 8192;

/// What records and reconciles leave to do.
#[derive(Debug, Default)]
pub struct FollowUps {
    pending: Mutex<Pending>,
    added: Notify,
}

#[derive(Debug, Default)]
struct Pending {
    added: HashSet<IpAddr>,
    freed: bool,
    /// Cooldowns may have begun.
    ran: bool,
}

/// Work that is due now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DueWork {
    pub announce: Vec<IpAddr>,
    /// Whether to remove the connections of all freed addresses.
    pub forget: bool,
    /// Whether to check for ended cooldowns.
    pub check: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WorkResult {
    /// The time until the next cooldown ends; `None` without a check or a cooldown.
    pub next_check: Option<Duration>,
    pub failed: bool,
}

impl FollowUps {
    /// Notes a record's addresses.
    pub fn note(&self, record: &VerbRecord) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if record.verb == "ADD" && record.code == 0 && pending.added.len() < LONGEST {
            pending.added.extend(&record.addresses);
        }
        // A failed GC frees addresses, too.
        pending.freed |= matches!(record.verb.as_str(), "DEL" | "GC") && !record.addresses.is_empty();
        // So does a failed ADD, which has no connections yet.
        pending.ran = true;
        self.added.notify_one();
    }

    /// Notes that the agent freed addresses.
    pub fn freed(&self) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        (pending.freed, pending.ran) = (true, true);
        self.added.notify_one();
    }

    fn take(&self) -> Pending {
        std::mem::take(&mut self.pending.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Does the work when it is due. Without work it sleeps without a timer.
pub(crate) async fn run(agent: Arc<Agent>) -> io::Result<()> {
    let mut worker = Worker::new(agent.clone());
    let follow_ups = &agent.follow_ups;
    let mut plan = Plan { check: Some(Instant::now()), ..Plan::default() };
    loop {
        // Cancel-safe: a notification that is not waited for stays, with the addresses; and a timer.
        tokio::select! {
            () = follow_ups.added.notified() => plan.add(follow_ups.take(), Instant::now()),
            () = sleep_until(plan.next().unwrap_or_else(Instant::now)), if plan.next().is_some() => {}
        }
        let due = plan.due(Instant::now());
        if due == DueWork::default() {
            continue;
        }
        let checked = due.check;
        // Kernel and files: short, but not on the thread that answers health checks.
        let work = tokio::task::spawn_blocking(move || {
            let result = worker.work(&due);
            (worker, result)
        });
        let (returned, result) = work.await.map_err(io::Error::other)?;
        worker = returned;
        plan.done(result, checked, Instant::now());
    }
}

/// When work is due.
#[derive(Debug, Default)]
struct Plan {
    announce: Vec<IpAddr>,
    /// Second announcements, the earliest first.
    again: std::collections::VecDeque<(Instant, Vec<IpAddr>)>,
    forget: Option<Instant>,
    check: Option<Instant>,
}

impl Plan {
    fn add(&mut self, pending: Pending, now: Instant) {
        self.announce.extend(pending.added);
        if pending.freed {
            self.forget.get_or_insert(now + GATHERING);
        }
        if pending.ran {
            self.check.get_or_insert(now + COOLDOWN + BETWEEN_CHECKS);
        }
    }

    fn next(&self) -> Option<Instant> {
        let again = self.again.front().map(|(at, _)| *at);
        [again, self.forget, self.check].into_iter().flatten().min()
    }

    fn due(&mut self, now: Instant) -> DueWork {
        let mut announce = std::mem::take(&mut self.announce);
        if !announce.is_empty() {
            self.again.push_back((now + SECOND_ANNOUNCEMENT, announce.clone()));
        }
        while self.again.front().is_some_and(|(at, _)| *at <= now) {
            announce.extend(self.again.pop_front().into_iter().flat_map(|(_, addresses)| addresses));
        }
        let take = |at: &mut Option<Instant>| at.take_if(|at| *at <= now).is_some();
        DueWork { announce, forget: take(&mut self.forget), check: take(&mut self.check) }
    }

    fn done(&mut self, result: WorkResult, checked: bool, now: Instant) {
        let next = match result {
            WorkResult { failed: true, .. } if checked => Some(RETRY),
            WorkResult { next_check, .. } => next_check.map(|wait| wait.max(BETWEEN_CHECKS)),
        };
        if let Some(wait) = next {
            let at = now + wait;
            self.check = Some(self.check.map_or(at, |planned| planned.min(at)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 4, last])
    }

    fn pending(verb: &str, code: u32, last: u8) -> Pending {
        let follow_ups = FollowUps::default();
        follow_ups.note(&VerbRecord {
            addresses: vec![address(last)],
            code,
            ..VerbRecord::begin("vcn-native", "0", verb)
        });
        follow_ups.take()
    }

    #[test]
    fn added_address_is_announced_twice() {
        let (mut plan, now) = (Plan::default(), Instant::now());
        plan.add(pending("ADD", 0, 7), now);
        assert_eq!(plan.due(now).announce, [address(7)]);
        assert_eq!(plan.due(now), DueWork::default());
        assert_eq!(plan.next(), Some(now + SECOND_ANNOUNCEMENT));
        assert_eq!(plan.due(now + SECOND_ANNOUNCEMENT).announce, [address(7)]);
        assert_eq!(plan.due(now + 2 * SECOND_ANNOUNCEMENT), DueWork::default());
    }

    #[test]
    fn freed_addresses_are_gathered_and_every_run_is_checked_after_cooldown() {
        for (verb, code, forget) in [("ADD", 11, false), ("CHECK", 0, false), ("DEL", 0, true), ("GC", 999, true)] {
            let (mut plan, now) = (Plan::default(), Instant::now());
            plan.add(pending(verb, code, 7), now);
            plan.add(pending(verb, code, 8), now + GATHERING / 2);
            assert_eq!(plan.due(now + GATHERING / 2), DueWork::default());
            assert_eq!(plan.due(now + GATHERING), DueWork { forget, ..DueWork::default() }, "{verb}");
            let end = plan.next().unwrap();
            assert!(end > now + COOLDOWN);
            assert_eq!(plan.due(end), DueWork { check: true, ..DueWork::default() });
            assert_eq!(plan.next(), None, "nothing is due without records");
        }
    }

    #[test]
    fn run_without_freed_addresses_removes_no_connections() {
        let (mut plan, now) = (Plan::default(), Instant::now());
        let follow_ups = FollowUps::default();
        follow_ups.note(&VerbRecord::begin("vcn-native", "0", "GC"));
        plan.add(follow_ups.take(), now);
        assert_eq!(plan.due(now + GATHERING), DueWork::default());
        follow_ups.freed();
        plan.add(follow_ups.take(), now);
        assert!(plan.due(now + GATHERING).forget, "the agent freed some");
    }

    #[test]
    fn checks_keep_a_distance_and_failure_is_retried() {
        let (mut plan, now) = (Plan::default(), Instant::now());
        plan.done(WorkResult { next_check: Some(Duration::from_millis(1)), failed: false }, true, now);
        assert_eq!(plan.next(), Some(now + BETWEEN_CHECKS));
        let (mut plan, failed) = (Plan::default(), WorkResult { next_check: None, failed: true });
        plan.done(failed, true, now);
        assert_eq!(plan.next(), Some(now + RETRY));
    }
}
