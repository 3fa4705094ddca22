//! Repairs: which limits of the kernel a rule with `"action": "repair"` may raise, when, and when they are set back. Pure: it
//! returns steps, and the agent carries them out.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::report::{Report, SignalState, Verdict};
use crate::rules::Action;

/// How long a raised limit may take to help: longer than the samples of a shipped rule reach back.
pub const TRIAL: Duration = Duration::from_mins(15);

/// The least time between two attempts.
const REST: Duration = Duration::from_hours(1);

/// The query of a request for a summary with which the controller permits repairs on this node for a few minutes.
pub const REPAIRS_QUERY: &str = "repairs=allow";

/// A limit that can be raised without harm: it costs only memory that is in use.
#[derive(Debug, PartialEq, Eq)]
pub struct Limit {
    /// Its name.
    pub name: &'static str,
    /// The settings below /proc/sys. A signal does not say which family is full, so they change together.
    pub settings: &'static [&'static str],
    /// The signal of its use, in percent.
    used: &'static str,
    /// The signal of what is lost when it is used up.
    lost: &'static str,
    /// Never higher.
    cap: u64,
    /// Bytes of memory for each, which may take 2 % of the memory.
    bytes: u64,
}

/// All of them.
pub const LIMITS: &[Limit] = &[
    Limit {
        name: "connections",
        settings: &["net/netfilter/nf_conntrack_max"],
        used: "conntrack_use",
        lost: "conntrack_drops",
        cap: 2 * 1024 * 1024,
        bytes: 400,
    },
    Limit {
        name: "neighbours",
        settings: &["net/ipv4/neigh/default/gc_thresh3", "net/ipv6/neigh/default/gc_thresh3"],
        used: "neighbour_use",
        lost: "neighbour_overflows",
        // A /16 subnet.
        cap: 65_536,
        bytes: 1024,
    },
];

/// Whether a rule about a signal may repair.
#[must_use]
pub fn is_repairable(signal: &str) -> bool {
    LIMITS.iter().any(|limit| [limit.used, limit.lost].contains(&signal))
}

/// Set a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The limit.
    pub limit: &'static Limit,
    /// Its value now. If it has another, another program set it, and it is not touched.
    pub from: u64,
    /// Its next value.
    pub to: u64,
}

/// What a plan depends on.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The signals.
    pub report: &'a Report,
    /// The time.
    pub now: Instant,
    /// Whether the controller permits repairs.
    pub is_allowed: bool,
    /// The machine's memory in bytes.
    pub memory: u64,
}

/// The attempts so far.
#[derive(Debug, Default)]
pub struct Repairs {
    attempts: BTreeMap<&'static str, Attempt>,
}

/// The last attempt at a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The value before.
    pub from: u64,
    /// The raised value.
    pub to: u64,
    /// When it was raised.
    at: Instant,
    /// How it went.
    pub outcome: Outcome,
}

/// How an attempt went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The raised value is being tried.
    Trial,
    /// The problem ended.
    Helped,
    /// It did not: the value before comes back when that does no harm.
    WithoutEffect,
}

impl Repairs {
    /// What is due now. `read` returns the lowest value of a limit's settings.
    #[must_use]
    pub fn plan(&mut self, situation: Situation<'_>, read: impl Fn(&Limit) -> Option<u64>) -> Vec<Step> {
        LIMITS.iter().filter_map(|limit| self.step(limit, situation, &read)).collect()
    }

    fn step(
        &mut self,
        limit: &'static Limit,
        situation: Situation<'_>,
        read: impl Fn(&Limit) -> Option<u64>,
    ) -> Option<Step> {
        let Situation { report, now, is_allowed, memory } = situation;
        let Some(attempt) = self.attempts.get_mut(limit.name) else {
            let from = read(limit).filter(|_| is_allowed && limit.wants(report))?;
            let to = from.saturating_mul(2).min(limit.cap).min(memory / 50 / limit.bytes);
            return (to > from).then_some(Step { limit, from, to });
        };
        match attempt.outcome {
            Outcome::Trial if now >= attempt.at + TRIAL => {
                if limit.wants(report) {
                    attempt.outcome = Outcome::WithoutEffect;
                } else if limit.used(report).is_some_and(|state| state.verdict == Verdict::Healthy) {
                    attempt.outcome = Outcome::Helped;
                }
                None
            }
            Outcome::Trial => None,
            Outcome::WithoutEffect => {
                // Below the number in use, the kernel would refuse every new entry.
                let used = limit.used(report).filter(|state| state.verdict == Verdict::Healthy)?.value?;
                let (from, to) = (attempt.to, attempt.from);
                (used * (from as f64) < 50.0 * (to as f64)).then_some(Step { limit, from, to })
            }
            Outcome::Helped if now >= attempt.at + REST => {
                self.attempts.remove(limit.name);
                None
            }
            Outcome::Helped => None,
        }
    }

    /// Notes that a step was carried out, or was found void because another program had set the limit.
    pub fn carried_out(&mut self, step: Step, at: Instant) {
        if self.attempts.remove(step.limit.name).is_none() {
            let attempt = Attempt { from: step.from, to: step.to, at, outcome: Outcome::Trial };
            self.attempts.insert(step.limit.name, attempt);
        }
    }

    /// The last attempt at each limit.
    pub fn attempts(&self) -> impl Iterator<Item = (&'static Limit, Attempt)> {
        LIMITS.iter().filter_map(|limit| Some((limit, *self.attempts.get(limit.name)?)))
    }
}

impl Limit {
    /// Whether a problem asks to raise it.
    fn wants(&self, report: &Report) -> bool {
        report.signals.iter().any(|state| {
            state.verdict == Verdict::Problem
                && state.action == Action::Repair
                && [self.used, self.lost].contains(&state.signal.as_str())
        })
    }

    fn used<'a>(&self, report: &'a Report) -> Option<&'a SignalState> {
        report.signals.iter().find(|state| state.signal == self.used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors;

    const GIBIBYTE: u64 = 1 << 30;

    fn report(verdict: Verdict, percent: f64, action: Action) -> Report {
        let blank = SignalState::blank(collectors::signal("conntrack_use").unwrap(), 60, 0);
        let state = SignalState { verdict, action, value: Some(percent), ..blank };
        Report { signals: vec![state], ..Report::default() }
    }

    fn problem() -> Report {
        report(Verdict::Problem, 90.0, Action::Repair)
    }

    fn healthy(percent: f64) -> Report {
        report(Verdict::Healthy, percent, Action::Report)
    }

    struct Node {
        repairs: Repairs,
        start: Instant,
        max: u64,
        memory: u64,
    }

    impl Node {
        fn new(max: u64) -> Self {
            Self { repairs: Repairs::default(), start: Instant::now(), max, memory: 64 * GIBIBYTE }
        }

        /// The steps some minutes after the start, carried out.
        fn after(&mut self, minutes: u64, report: &Report, is_allowed: bool) -> Vec<String> {
            let (now, max) = (self.start + Duration::from_mins(minutes), self.max);
            let situation = Situation { report, now, is_allowed, memory: self.memory };
            let steps = self.repairs.plan(situation, |limit| (limit.name == "connections").then_some(max));
            let carry_out = |step: Step| {
                self.max = step.to;
                self.repairs.carried_out(step, now);
                format!("{} to {}", step.from, step.to)
            };
            steps.into_iter().map(carry_out).collect()
        }

        fn outcome(&self) -> Option<Outcome> {
            self.repairs.attempts().next().map(|(_, attempt)| attempt.outcome)
        }
    }

    #[test]
    fn limit_is_raised_once_an_hour_and_kept_when_effective() {
        let mut node = Node::new(1000);
        assert_eq!(node.after(0, &problem(), true), ["1000 to 2000"]);
        assert_eq!(node.after(5, &problem(), true), [""; 0]);
        assert_eq!((node.after(15, &healthy(45.0), true), node.outcome()), (Vec::new(), Some(Outcome::Helped)));
        assert_eq!(node.after(30, &problem(), true), [""; 0], "one attempt an hour");
        assert_eq!((node.after(60, &problem(), true), node.outcome()), (Vec::new(), None));
        assert_eq!(node.after(61, &problem(), true), ["2000 to 4000"]);
    }

    #[test]
    fn ineffective_limit_is_restored_when_half_of_it_suffices() {
        let mut node = Node::new(1000);
        assert_eq!(node.after(0, &problem(), true), ["1000 to 2000"]);
        let unknown = report(Verdict::Unknown, 0.0, Action::Report);
        assert_eq!((node.after(15, &unknown, true), node.outcome()), (Vec::new(), Some(Outcome::Trial)));
        assert_eq!((node.after(16, &problem(), true), node.outcome()), (Vec::new(), Some(Outcome::WithoutEffect)));
        assert_eq!(node.after(200, &problem(), true), [""; 0], "neither raised nor set back");
        assert_eq!(node.after(201, &healthy(25.0), true), [""; 0], "500 are in use");
        assert_eq!(node.after(202, &healthy(24.0), false), ["2000 to 1000"]);
        assert_eq!((node.max, node.outcome()), (1000, None));
    }

    #[test]
    fn nothing_is_raised_without_permission_rule_or_room() {
        assert_eq!(Node::new(1000).after(0, &problem(), false), [""; 0], "the controller does not permit it");
        assert_eq!(Node::new(1000).after(0, &report(Verdict::Problem, 90.0, Action::Report), true), [""; 0]);
        assert_eq!(Node::new(1000).after(0, &problem().without_repairs(), true), [""; 0], "REPAIRS is off");
        assert_eq!(Node::new(LIMITS[0].cap).after(0, &problem(), true), [""; 0], "at the cap");
        assert_eq!(Node::new(LIMITS[0].cap - 1).after(0, &problem(), true), ["2097151 to 2097152"]);
        let mut small = Node { memory: GIBIBYTE, ..Node::new(50_000) };
        assert_eq!(small.after(0, &problem(), true), ["50000 to 53687"], "2 % of the memory");
    }
}
