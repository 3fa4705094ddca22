//! Repairs: which limits of the kernel a rule with `"action": "repair"` may raise, when, and when that is undone. Pure: it
//! returns steps, and the agent carries them out.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::report::{Report, Verdict};
use crate::rules::Action;

/// How long a raised limit may take to help.
pub const TRIAL: Duration = Duration::from_mins(10);

/// The least time between two attempts at one limit.
const REST: Duration = Duration::from_hours(1);

/// A limit that can be raised without harm: it costs only memory that is in use.
#[derive(Debug, PartialEq, Eq)]
pub struct Limit {
    /// The setting below /proc/sys, by which it is known.
    pub setting: &'static str,
    /// Signals of its use.
    pub signals: &'static [&'static str],
    /// Never higher: at this value the kernel's objects take at most about a gigabyte.
    pub cap: u64,
}

/// All of them.
pub const LIMITS: &[Limit] = &[
    Limit {
        setting: "net/netfilter/nf_conntrack_max",
        signals: &["conntrack_use", "conntrack_drops"],
        // About 400 bytes each.
        cap: 2 * 1024 * 1024,
    },
    Limit {
        setting: "net/ipv4/neigh/default/gc_thresh3",
        signals: &["neighbour_use", "neighbour_overflows"],
        // A /16 subnet.
        cap: 65_536,
    },
    Limit {
        setting: "net/ipv6/neigh/default/gc_thresh3",
        signals: &["neighbour_use", "neighbour_overflows"],
        cap: 65_536,
    },
];

/// Whether a rule about a signal may repair.
#[must_use]
pub fn is_repairable(signal: &str) -> bool {
    LIMITS.iter().any(|limit| limit.signals.contains(&signal))
}

/// What to do about a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Raise it.
    Raise {
        /// The limit.
        limit: &'static Limit,
        /// Its value now.
        from: u64,
        /// Its next value.
        to: u64,
    },
    /// Set it back, because raising it did not help.
    Restore {
        /// The limit.
        limit: &'static Limit,
        /// Its value before.
        to: u64,
    },
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
    at: Instant,
    /// The state of the attempt.
    pub outcome: Outcome,
}

/// How an attempt went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The raised value is being tried.
    Trial,
    /// The problem ended.
    Helped,
    /// It did not, and the value before is back.
    Undone,
}

impl Repairs {
    /// What is due now. `is_allowed` says whether the controller lets this node repair, `read` a limit's value.
    #[must_use]
    pub fn plan(
        &mut self,
        report: &Report,
        now: Instant,
        is_allowed: bool,
        read: impl Fn(&Limit) -> Option<u64>,
    ) -> Vec<Step> {
        LIMITS.iter().filter_map(|limit| self.step(limit, wants(limit, report), now, is_allowed, &read)).collect()
    }

    fn step(
        &mut self,
        limit: &'static Limit,
        wanted: bool,
        now: Instant,
        is_allowed: bool,
        read: impl Fn(&Limit) -> Option<u64>,
    ) -> Option<Step> {
        if let Some(attempt) = self.attempts.get_mut(limit.setting) {
            if now < attempt.at + TRIAL {
                return None;
            }
            if attempt.outcome == Outcome::Trial {
                attempt.outcome = if wanted { Outcome::Undone } else { Outcome::Helped };
                return wanted.then_some(Step::Restore { limit, to: attempt.from });
            }
            if now < attempt.at + REST {
                return None;
            }
            self.attempts.remove(limit.setting);
        }
        let from = read(limit).filter(|_| wanted && is_allowed)?;
        let to = from.saturating_mul(2).min(limit.cap);
        (to > from).then_some(Step::Raise { limit, from, to })
    }

    /// Notes that a limit was raised.
    pub fn raised(&mut self, limit: &Limit, from: u64, to: u64, at: Instant) {
        if let Some(limit) = LIMITS.iter().find(|known| known.setting == limit.setting) {
            self.attempts.insert(limit.setting, Attempt { from, to, at, outcome: Outcome::Trial });
        }
    }

    /// The last attempt at each limit, by its setting.
    pub fn attempts(&self) -> impl Iterator<Item = (&'static str, Attempt)> {
        self.attempts.iter().map(|(setting, attempt)| (*setting, *attempt))
    }
}

/// Whether a problem asks to raise a limit.
fn wants(limit: &Limit, report: &Report) -> bool {
    report.signals.iter().any(|state| {
        state.verdict == Verdict::Problem
            && state.action == Action::Repair
            && limit.signals.contains(&state.signal.as_str())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors;
    use crate::report::SignalState;

    fn report(verdict: Verdict, action: Action) -> Report {
        let blank = SignalState::blank(collectors::signal("conntrack_use").unwrap(), 60, 0);
        Report { signals: vec![SignalState { verdict, action, ..blank }] }
    }

    struct Node {
        repairs: Repairs,
        start: Instant,
        max: u64,
    }

    impl Node {
        fn new(max: u64) -> Self {
            Self { repairs: Repairs::default(), start: Instant::now(), max }
        }

        /// The steps some minutes after the start, carried out.
        fn after(&mut self, minutes: u64, report: &Report, is_allowed: bool) -> Vec<String> {
            let (now, max) = (self.start + Duration::from_mins(minutes), self.max);
            let read = |limit: &Limit| limit.setting.contains("conntrack").then_some(max);
            let steps = self.repairs.plan(report, now, is_allowed, read);
            let carry_out = |step| match step {
                Step::Raise { limit, from, to } => {
                    self.max = to;
                    self.repairs.raised(limit, from, to, now);
                    format!("raise {from} to {to}")
                }
                Step::Restore { to, .. } => {
                    self.max = to;
                    format!("restore {to}")
                }
            };
            steps.into_iter().map(carry_out).collect()
        }
    }

    #[test]
    fn limit_is_raised_once_and_kept_if_that_helped() {
        let (problem, healthy) = (report(Verdict::Problem, Action::Repair), report(Verdict::Healthy, Action::Report));
        let mut node = Node::new(1000);
        assert_eq!(node.after(0, &problem, true), ["raise 1000 to 2000"]);
        assert_eq!(node.after(5, &problem, true), [""; 0]);
        assert_eq!(node.after(11, &healthy, true), [""; 0]);
        assert_eq!(node.repairs.attempts().next().unwrap().1.outcome, Outcome::Helped);
        assert_eq!(node.after(30, &problem, true), [""; 0], "one attempt an hour");
        assert_eq!(node.after(61, &problem, true), ["raise 2000 to 4000"]);
    }

    #[test]
    fn limit_is_restored_if_raising_did_not_help() {
        let problem = report(Verdict::Problem, Action::Repair);
        let mut node = Node::new(1000);
        assert_eq!(node.after(0, &problem, true), ["raise 1000 to 2000"]);
        assert_eq!(node.after(10, &problem, false), ["restore 1000"]);
        assert_eq!((node.max, node.after(20, &problem, true)), (1000, Vec::new()));
    }

    #[test]
    fn nothing_is_raised_without_permission_rule_or_room() {
        let problem = report(Verdict::Problem, Action::Repair);
        assert_eq!(Node::new(1000).after(0, &problem, false), [""; 0], "the controller does not allow it");
        assert_eq!(Node::new(1000).after(0, &report(Verdict::Problem, Action::Report), true), [""; 0]);
        assert_eq!(Node::new(LIMITS[0].cap).after(0, &problem, true), [""; 0], "at the cap");
        assert_eq!(Node::new(LIMITS[0].cap - 1).after(0, &problem, true), ["raise 2097151 to 2097152"]);
    }
}
