//! When the next request to each agent is due. Pure.
//!
//! The interval follows the size of the fleet: the same requests per second are shared by all agents. Each agent has its own
//! moment in the interval, by a hash of the node's name. Retries have places of their own, so that nodes that do not answer
//! never delay those that do.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use backoff::Backoff;
use tokio::time::Instant;

/// Between the first requests to agents that appear together: ten thousand are queried within 30 s.
const FIRST_POLL_SPACING: Duration = Duration::from_millis(3);
/// The backoff after the first failure of an agent; it grows up to the interval of its requests.
const FIRST_BACKOFF: Duration = Duration::from_secs(5);
/// The interval of a small fleet, and the step in which it grows. A fleet that gains or loses a node now and then keeps its
/// interval, and each agent its moment.
const INTERVAL_STEP: Duration = Duration::from_secs(30);
/// Agents per step: 42 requests per second at most, and 240 s for 10,000 agents.
const AGENTS_PER_STEP: usize = 1250;

/// Which requests an agent waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    Regular,
    /// Those after a failure.
    Retry,
}

/// When a request is due.
pub(crate) type DueTime = (Lane, Instant);

/// The requests that are due, in order.
#[derive(Debug)]
pub(crate) struct Schedule {
    interval: Duration,
    max_interval: Duration,
    began: Instant,
    /// When the next agent that appears is polled.
    first: Instant,
    regular: BTreeSet<(Instant, Arc<str>)>,
    retries: BTreeSet<(Instant, Arc<str>)>,
}

impl Schedule {
    /// The schedule of a leader that starts now and polls each agent at least once in `max_interval`.
    pub(crate) fn new(max_interval: Duration, now: Instant) -> Self {
        let interval = interval(0, max_interval);
        Self { interval, max_interval, began: now, first: now, regular: BTreeSet::new(), retries: BTreeSet::new() }
    }

    /// Follows the size of the fleet. Requests that are scheduled already keep their time.
    pub(crate) fn set_agents(&mut self, agents: usize) {
        self.interval = interval(agents, self.max_interval);
    }

    /// The time in which each agent is queried once.
    pub(crate) const fn interval(&self) -> Duration {
        self.interval
    }

    /// The first request to an agent that appears.
    pub(crate) fn first(&mut self, now: Instant) -> DueTime {
        let due = now.max(self.first);
        self.first = due + FIRST_POLL_SPACING;
        (Lane::Regular, due)
    }

    /// The request after an answer: at the first moment of the node's own after `now`.
    pub(crate) fn regular(&self, node: &str, now: Instant) -> DueTime {
        let first = self.began + self.interval.mul_f64(fraction(node));
        let passed = now.saturating_duration_since(first).as_nanos() / self.interval.as_nanos().max(1);
        let rounds = if now < first { 0 } else { u32::try_from(passed).unwrap_or(u32::MAX - 1) + 1 };
        (Lane::Regular, first + self.interval * rounds)
    }

    /// The request after so many failures. `chance` is in 0.0–1.0, for the jitter.
    pub(crate) fn retry(&self, failures: u32, now: Instant, chance: f64) -> DueTime {
        let backoff = Backoff { first: FIRST_BACKOFF.min(self.interval), cap: self.interval };
        (Lane::Retry, now + backoff.delay(failures, chance))
    }

    /// Replaces when a node is queried.
    pub(crate) fn replace(&mut self, node: &Arc<str>, before: Option<DueTime>, due: Option<DueTime>) {
        if let Some((lane, at)) = before {
            self.lane(lane).remove(&(at, node.clone()));
        }
        if let Some((lane, at)) = due {
            self.lane(lane).insert((at, node.clone()));
        }
    }

    pub(crate) fn next(&self, lane: Lane) -> Option<&(Instant, Arc<str>)> {
        match lane {
            Lane::Regular => self.regular.first(),
            Lane::Retry => self.retries.first(),
        }
    }

    const fn lane(&mut self, lane: Lane) -> &mut BTreeSet<(Instant, Arc<str>)> {
        match lane {
            Lane::Regular => &mut self.regular,
            Lane::Retry => &mut self.retries,
        }
    }
}

/// The time in which so many agents are queried once.
fn interval(agents: usize, max_interval: Duration) -> Duration {
    let steps = u32::try_from(agents.div_ceil(AGENTS_PER_STEP)).unwrap_or(u32::MAX).max(1);
    INTERVAL_STEP.saturating_mul(steps).min(max_interval)
}

/// A node's place in the interval, in 0.0–1.0.
fn fraction(node: &str) -> f64 {
    let mut hasher = DefaultHasher::new();
    node.hash(&mut hasher);
    f64::from(u32::try_from(hasher.finish() >> 32).unwrap_or_default()) / f64::from(u32::MAX)
}
