//! The fleet in numbers, for metrics.

use std::sync::LazyLock;

use health::hardware::device;
use health::report::Verdict;
use health::summary::Check;
use tokio::time::Instant;

use crate::fleet::roster::Roster;
use crate::report::metrics::FleetCensus;

/// A check that is not a known signal: conditions of agents, and whatever else an agent may send.
const OTHER: &str = "other";

/// The known reasons of devices.
static REASONS: LazyLock<Vec<String>> = LazyLock::new(|| device::reasons().map(|(reason, _)| reason).collect());

impl FleetCensus {
    pub(crate) fn of(roster: &Roster, now: Instant) -> Self {
        let mut census = Self { sweep: roster.last_sweep().unwrap_or_default(), ..Self::default() };
        census.nodes = roster.states(now);
        for (summary, age) in roster.summaries(now) {
            census.oldest = census.oldest.max(age);
            let has = summary.controller_rules.as_deref().unwrap_or_default();
            census.other_rules += usize::from(roster.rules_version().is_some_and(|version| version != has));
            summary.checks.iter().for_each(|check| census.count(check));
        }
        roster.host_events().for_each(|check| census.count(check));
        census
    }

    fn count(&mut self, check: &Check) {
        if check.verdict == Verdict::Problem {
            let signal = health::collectors::signal(&check.name).map_or(OTHER, |signal| signal.name);
            *self.problems.entry((signal, check.severity)).or_default() += 1;
            for device in &check.devices {
                let reason = device.reason.as_ref().map_or(signal, |reason| {
                    REASONS.iter().find(|known| *known == reason).map_or(OTHER, String::as_str)
                });
                *self.devices.entry(reason).or_default() += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use health::Summary;
    use health::hardware::device::FaultyDevice;
    use health::rules::Severity;

    use super::*;
    use crate::fleet::findings::problem;
    use crate::fleet::poll::{Answer, PollLimits};
    use crate::fleet::roster::TrackedNode;

    #[test]
    fn names_that_an_agent_invents_are_counted_as_one() {
        let (node, now) = (Arc::from("a"), Instant::now());
        let mut roster = Roster::new(PollLimits::DEFAULT, now);
        roster.track(std::iter::once(TrackedNode { name: "a", ..TrackedNode::default() }), now);
        let check = |name: &str| problem(name, Severity::Warning);
        let device = |reason: &str| FaultyDevice { reason: Some(reason.to_owned()), ..FaultyDevice::default() };
        let mut checks = ["pids", "made-up-1", "made-up-2"].map(check).to_vec();
        checks[1].devices = ["XidNodeReboot", "XidNodeReboot", "MadeUp"].map(device).to_vec();
        let summary = Summary { checks, ..Summary::default() };
        roster.answered(&node, Ok(Answer::Changed(Box::new(summary), None)), now, 0.0);
        let devices = BTreeMap::from([("XidNodeReboot", 2), (OTHER, 1)]);
        assert_eq!(FleetCensus::of(&roster, now).devices, devices);
        let expected = BTreeMap::from([(("pids", Severity::Warning), 1), ((OTHER, Severity::Warning), 2)]);
        assert_eq!(FleetCensus::of(&roster, now).problems, expected);
    }
}
