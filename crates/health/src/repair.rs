//! Repairs: which limits of the kernel a rule with `"action": "repair"` may raise, when, and when they are set back. Pure: it
//! returns steps, and the agent carries them out.

pub(crate) mod limit;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::report::{Report, SignalState};
use crate::verdict::{Action, Verdict};

pub use limit::{LIMITS, Limit};

/// How long a raised limit may take to help: longer than the samples of a shipped rule reach back.
pub const TRIAL: Duration = Duration::from_mins(15);

/// The least time between two attempts.
const ATTEMPT_INTERVAL: Duration = Duration::from_hours(1);

/// Set the settings of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The limit that is raised.
    pub limit: &'static Limit,
    /// The settings that are changed for it.
    pub changes: Vec<Change>,
}

/// The change of one kernel setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The path of the setting below /proc/sys.
    pub setting: &'static str,
    /// The value that it has now.
    pub from: u64,
    /// The value that it gets.
    pub to: u64,
}

/// What a plan depends on.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The signals as they were last judged.
    pub report: &'a Report,
    /// The time of this decision.
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The settings that were raised.
    pub raised: Vec<Change>,
    /// When it was raised.
    at: Instant,
    /// The result of the repair.
    pub outcome: Outcome,
}

/// How an attempt went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The raised value is being tried.
    Trial,
    /// The problem ended after the repair.
    Effective,
    /// It did not: the values before come back when that does no harm.
    WithoutEffect,
}

impl Repairs {
    /// What is due now. `read` returns the value of a setting, or none if the kernel lacks it.
    #[must_use]
    pub fn plan(&mut self, situation: Situation<'_>, read: impl Fn(&str) -> Option<u64>) -> Vec<Step> {
        LIMITS.iter().filter_map(|limit| self.step(limit, situation, &read)).collect()
    }

    fn step(
        &mut self,
        limit: &'static Limit,
        situation: Situation<'_>,
        read: impl Fn(&str) -> Option<u64>,
    ) -> Option<Step> {
        let Situation { report, now, is_allowed, memory } = situation;
        let Some(attempt) = self.attempts.get_mut(limit.name) else {
            if !is_allowed || !limit.needs_repair(report) {
                return None;
            }
            let highest = limit.cap.min(memory / 50 / limit.bytes);
            let raise = |setting: &&'static str| {
                let from = read(setting)?;
                let to = from.saturating_mul(2).min(highest);
                (to > from).then_some(Change { setting, from, to })
            };
            let changes: Vec<Change> = limit.settings.iter().filter_map(raise).collect();
            return (!changes.is_empty()).then_some(Step { limit, changes });
        };
        match attempt.outcome {
            Outcome::Trial if now >= attempt.at + TRIAL => {
                if limit.needs_repair(report) {
                    attempt.outcome = Outcome::WithoutEffect;
                } else if limit.used(report).is_some_and(|state| state.verdict == Verdict::Healthy) {
                    attempt.outcome = Outcome::Effective;
                }
                None
            }
            Outcome::Trial => None,
            Outcome::WithoutEffect => {
                // Another program set the others.
                attempt.raised.retain(|change| read(change.setting) == Some(change.to));
                if attempt.raised.is_empty() {
                    self.attempts.remove(limit.name);
                    return None;
                }
                // Below the number in use, the kernel would refuse every new entry.
                let used = limit.used(report).filter(|state| state.verdict == Verdict::Healthy)?.value?;
                let suffices = |change: &Change| used * (change.to as f64) < 50.0 * (change.from as f64);
                let restore = |&Change { setting, from, to }: &Change| Change { setting, from: to, to: from };
                attempt
                    .raised
                    .iter()
                    .all(suffices)
                    .then(|| Step { limit, changes: attempt.raised.iter().map(restore).collect() })
            }
            Outcome::Effective if now >= attempt.at + ATTEMPT_INTERVAL => {
                self.attempts.remove(limit.name);
                None
            }
            Outcome::Effective => None,
        }
    }

    /// Notes the changes of a step that were carried out. The others are not raised in this attempt, or are restored later.
    pub fn carried_out(&mut self, step: Step, at: Instant) {
        let Step { limit, changes } = step;
        if changes.is_empty() {
            return;
        }
        let Some(attempt) = self.attempts.get_mut(limit.name) else {
            self.attempts.insert(limit.name, Attempt { raised: changes, at, outcome: Outcome::Trial });
            return;
        };
        attempt.raised.retain(|raised| changes.iter().all(|change| change.setting != raised.setting));
        if attempt.raised.is_empty() {
            self.attempts.remove(limit.name);
        }
    }

    /// The last attempt at each limit.
    pub fn attempts(&self) -> impl Iterator<Item = (&'static Limit, &Attempt)> {
        LIMITS.iter().filter_map(|limit| Some((limit, self.attempts.get(limit.name)?)))
    }
}

impl Limit {
    /// Whether a problem requires raising it.
    fn needs_repair(&self, report: &Report) -> bool {
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

    const CONNECTIONS: &str = "net/netfilter/nf_conntrack_max";

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
        settings: BTreeMap<&'static str, u64>,
        memory: u64,
    }

    impl Node {
        fn new(max: u64) -> Self {
            Self::with([(CONNECTIONS, max)].into())
        }

        fn with(settings: BTreeMap<&'static str, u64>) -> Self {
            Self { repairs: Repairs::default(), start: Instant::now(), settings, memory: 64 * GIBIBYTE }
        }

        /// The changes some minutes after the start, carried out.
        fn after(&mut self, minutes: u64, report: &Report, is_allowed: bool) -> Vec<String> {
            let now = self.start + Duration::from_mins(minutes);
            let situation = Situation { report, now, is_allowed, memory: self.memory };
            let steps = self.repairs.plan(situation, |setting| self.settings.get(setting).copied());
            let mut texts = Vec::new();
            for step in steps {
                for change in &step.changes {
                    texts.push(format!("{} to {}", change.from, change.to));
                    assert_eq!(self.settings.insert(change.setting, change.to), Some(change.from));
                }
                self.repairs.carried_out(step, now);
            }
            texts
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
        assert_eq!((node.after(15, &healthy(45.0), true), node.outcome()), (Vec::new(), Some(Outcome::Effective)));
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
        assert_eq!((node.settings[CONNECTIONS], node.outcome()), (1000, None));
    }

    #[test]
    fn each_setting_keeps_its_own_value_and_those_of_other_programs_stay() {
        const LIMITED_SETTINGS: [&str; 2] = ["net/ipv4/neigh/default/gc_thresh3", "net/ipv6/neigh/default/gc_thresh3"];
        let of = |verdict, percent, action| {
            let blank = SignalState::blank(collectors::signal("neighbour_use").unwrap(), 60, 0);
            Report {
                signals: vec![SignalState { verdict, action, value: Some(percent), ..blank }],
                ..Report::default()
            }
        };
        let (problem, idle) = (of(Verdict::Problem, 90.0, Action::Repair), of(Verdict::Healthy, 10.0, Action::Report));
        let mut node = Node::with(LIMITED_SETTINGS.into_iter().zip([40_000, 1024]).collect());
        assert_eq!(node.after(0, &problem, true), ["40000 to 65536", "1024 to 2048"]);
        assert_eq!(node.after(16, &problem, true), [""; 0]);
        node.settings.insert(LIMITED_SETTINGS[1], 4096);
        assert_eq!(node.after(17, &idle, true), ["65536 to 40000"]);
        assert_eq!((node.settings[LIMITED_SETTINGS[1]], node.outcome()), (4096, None));
    }

    #[test]
    fn changes_that_failed_are_not_restored() {
        let limit = &LIMITS[1];
        let [first, second] = [limit.settings[0], limit.settings[1]].map(|setting| Change { setting, from: 1, to: 2 });
        let mut repairs = Repairs::default();
        let mut note = |changes: &[Change]| {
            repairs.carried_out(Step { limit, changes: changes.to_vec() }, Instant::now());
            repairs.attempts().flat_map(|(_, attempt)| attempt.raised.clone()).collect::<Vec<_>>()
        };
        assert_eq!(note(&[]), []);
        assert_eq!(note(&[first, second]), [first, second]);
        assert_eq!(note(&[second]), [first], "the first could not be restored yet");
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
