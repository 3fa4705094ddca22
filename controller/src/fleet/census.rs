//! The fleet in numbers, for metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use health::fleet::NodeState;
use health::report::Verdict;
use health::rules::Severity;
use tokio::time::Instant;

use crate::fleet::roster::Roster;

/// A check that is no known signal. Agents' conditions are among them, and whatever else an agent may send.
const OTHER: &str = "other";

/// The fleet in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetCensus {
    /// Nodes by state.
    pub nodes: BTreeMap<NodeState, usize>,
    /// Nodes with a problem, by signal.
    pub problems: BTreeMap<(&'static str, Severity), usize>,
    /// The age of the oldest summary.
    pub oldest: Duration,
    /// The duration of the last sweep.
    pub sweep: Duration,
}

impl FleetCensus {
    /// Counts.
    #[must_use]
    pub fn of(roster: &Roster, now: Instant) -> Self {
        let mut census = Self { sweep: roster.last_sweep().unwrap_or_default(), ..Self::default() };
        let mut known = 0;
        for (summary, age) in roster.summaries(now) {
            known += 1;
            census.oldest = census.oldest.max(age);
            *census.nodes.entry(NodeState::of(summary)).or_default() += 1;
            for check in summary.checks.iter().filter(|check| check.verdict == Verdict::Problem) {
                let signal = health::collectors::signal(&check.name).map_or(OTHER, |signal| signal.name);
                *census.problems.entry((signal, check.severity)).or_default() += 1;
            }
        }
        *census.nodes.entry(NodeState::Unknown).or_default() += roster.count() - known;
        census
    }
}
