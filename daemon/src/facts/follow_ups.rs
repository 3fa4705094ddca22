//! What plugins and reconciles leave to the agent, and when it is due: announcing a new address to its subnet, and removing the
//! connections of a freed one.

use std::collections::{HashSet, VecDeque};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ipam::COOLDOWN;
use telemetry::VerbRecord;
use tokio::sync::Notify;
use tokio::time::Instant;

/// For a neighbour that missed the first announcement (RFC 5227 §2.3: two, 2 s apart; sooner is enough).
const SECOND_ANNOUNCEMENT: Duration = Duration::from_secs(1);

/// How long freed addresses are gathered before one walk through the kernel's connections.
const GATHERING: Duration = Duration::from_millis(100);

/// The least time between two checks for ended cooldowns.
const BETWEEN_CHECKS: Duration = Duration::from_secs(5);

/// When a failed check is retried.
const RETRY: Duration = Duration::from_secs(30);

/// The largest number of addresses to announce at a time; a node has a few hundred.
const MAX_ADDRESSES: usize = 8192;

/// What records and reconciles leave to do.
#[derive(Debug, Default)]
pub struct FollowUps {
    plan: Mutex<Plan>,
    added: Notify,
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

/// When work is due.
#[derive(Debug, Default)]
struct Plan {
    announce: HashSet<IpAddr>,
    /// In the order of their times, the earliest first.
    second_announcements: VecDeque<(Instant, Vec<IpAddr>)>,
    forget: Option<Instant>,
    check: Option<Instant>,
}

impl FollowUps {
    pub fn note(&self, record: &VerbRecord) {
        self.plan().note(record, Instant::now());
        self.added.notify_one();
    }

    /// Notes that the agent freed addresses.
    pub fn freed(&self) {
        self.plan().freed(Instant::now());
        self.added.notify_one();
    }

    /// Plans a check for cooldowns that ended before the agent started.
    pub(crate) fn check_now(&self) {
        self.plan().check = Some(Instant::now());
    }

    /// Waits for more work. Cancel-safe: an unconsumed notification stays.
    pub(crate) async fn added(&self) {
        self.added.notified().await;
    }

    /// When work is due, if there is any.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.plan().next()
    }

    /// Takes the work that is due.
    pub(crate) fn take_due(&self) -> DueWork {
        self.plan().due(Instant::now())
    }

    /// Plans the next check. `next` is the time until the next cooldown ends, or an error if the check failed.
    pub(crate) fn checked(&self, next: Result<Option<Duration>, ()>) {
        self.plan().checked(next, Instant::now());
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Plan {
    fn note(&mut self, record: &VerbRecord, now: Instant) {
        if record.verb == "ADD" && record.code == 0 && self.announce.len() < MAX_ADDRESSES {
            self.announce.extend(&record.addresses);
        }
        // A failed GC frees addresses, too.
        if matches!(record.verb.as_str(), "DEL" | "GC") && !record.addresses.is_empty() {
            self.freed(now);
        }
        // So does a failed ADD, which has no connections yet: a cooldown may have begun.
        self.check.get_or_insert(now + COOLDOWN + BETWEEN_CHECKS);
    }

    fn freed(&mut self, now: Instant) {
        self.forget.get_or_insert(now + GATHERING);
        self.check.get_or_insert(now + COOLDOWN + BETWEEN_CHECKS);
    }

    fn next(&self) -> Option<Instant> {
        let announcement = self.second_announcements.front().map(|(at, _)| *at);
        [announcement, self.forget, self.check].into_iter().flatten().min()
    }

    fn due(&mut self, now: Instant) -> DueWork {
        let mut announce: Vec<IpAddr> = self.announce.drain().collect();
        if !announce.is_empty() {
            self.second_announcements.push_back((now + SECOND_ANNOUNCEMENT, announce.clone()));
        }
        while self.second_announcements.front().is_some_and(|(at, _)| *at <= now) {
            announce.extend(self.second_announcements.pop_front().into_iter().flat_map(|(_, addresses)| addresses));
        }
        let take = |at: &mut Option<Instant>| at.take_if(|at| *at <= now).is_some();
        DueWork { announce, forget: take(&mut self.forget), check: take(&mut self.check) }
    }

    fn checked(&mut self, next: Result<Option<Duration>, ()>, now: Instant) {
        if let Some(wait) = next.map_or(Some(RETRY), |next| next.map(|wait| wait.max(BETWEEN_CHECKS))) {
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

    fn record(verb: &str, code: u32, last: u8) -> VerbRecord {
        VerbRecord { addresses: vec![address(last)], code, ..VerbRecord::begin("vcn-native", "0", verb) }
    }

    #[test]
    fn added_address_is_announced_twice() {
        let (mut plan, now) = (Plan::default(), Instant::now());
        plan.note(&record("ADD", 0, 7), now);
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
            plan.note(&record(verb, code, 7), now);
            plan.note(&record(verb, code, 8), now + GATHERING / 2);
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
        plan.note(&VerbRecord::begin("vcn-native", "0", "GC"), now);
        assert_eq!(plan.due(now + GATHERING), DueWork::default());
        plan.freed(now);
        assert!(plan.due(now + GATHERING).forget, "the agent freed some");
    }

    #[test]
    fn checks_keep_a_distance_and_failure_is_retried() {
        let (mut plan, now) = (Plan::default(), Instant::now());
        plan.checked(Ok(Some(Duration::from_millis(1))), now);
        assert_eq!(plan.next(), Some(now + BETWEEN_CHECKS));
        let mut plan = Plan::default();
        plan.checked(Err(()), now);
        assert_eq!(plan.next(), Some(now + RETRY));
    }
}
