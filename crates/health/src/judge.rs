//! Turns readings into results: N of the last M samples beyond a rule's bound are a problem, and it ends the same way. Pure:
//! time is a parameter.

use std::collections::{BTreeMap, VecDeque};

use crate::collector::Value;
use crate::report::SignalState;
use crate::rules::{Hardware, Rule, Rules};
use crate::signal::{Gap, Signal};
use crate::verdict::{Action, NotMeasured, Severity, Verdict};

/// The results so far.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    rules: Vec<Rule>,
    tracks: BTreeMap<&'static str, Track>,
}

#[derive(Debug, Default)]
struct Track {
    state: Option<SignalState>,
    /// By the rule's name.
    windows: BTreeMap<String, Window>,
}

/// The last samples of a rule.
#[derive(Debug, Default)]
struct Window {
    /// The value of each sample that was beyond the bound.
    breaches: VecDeque<Option<Value>>,
}

/// A reading at a time.
pub(crate) struct Reading<'a> {
    pub(crate) signal: &'static Signal,
    pub(crate) every_seconds: u64,
    pub(crate) read: Result<Value, Gap>,
    pub(crate) hardware: Hardware<'a>,
    pub(crate) unix_millis: u64,
}

impl Judge {
    /// By the shipped rules, until others are known.
    pub(crate) fn shipped() -> Self {
        Self { rules: Rules::shipped().rules, ..Self::default() }
    }

    /// Takes new rules; windows of rules that did not change stay.
    pub(crate) fn adopt(&mut self, rules: Rules) {
        let changed = |name: &str| {
            let find = |list: &[Rule]| list.iter().find(|rule| rule.name == name).cloned();
            find(&self.rules) != find(&rules.rules)
        };
        for track in self.tracks.values_mut() {
            track.windows.retain(|name, _| !changed(name));
        }
        self.rules = rules.rules;
    }

    pub(crate) fn record(&mut self, reading: Reading<'_>) {
        let Reading { signal, every_seconds, read, hardware, unix_millis } = reading;
        let track = self.tracks.entry(signal.name).or_default();
        let blank = SignalState::blank(signal, every_seconds, unix_millis);
        let state = match read {
            // A problem that cannot be measured any more is not solved.
            Err(gap @ (Gap::Unknown(_) | Gap::Waiting)) => {
                let rules = self.rules.iter().filter(|rule| rule.applies(hardware));
                let is_waiting = gap == Gap::Waiting;
                let blank = SignalState { verdict: Verdict::Unknown, detail: gap.to_string(), is_waiting, ..blank };
                track.open_problem(rules, &blank).unwrap_or(blank)
            }
            Err(Gap::NotApplicable(reason)) => {
                track.windows.clear();
                SignalState { verdict: Verdict::NotApplicable, detail: reason, ..blank }
            }
            Ok(value) => {
                let rules = self.rules.iter().filter(|rule| rule.signal == signal.name && rule.applies(hardware));
                track.judge(&rules.collect::<Vec<_>>(), value, SignalState { ..blank }, signal)
            }
        };
        track.keep(state);
    }

    /// All results, by the signal's name.
    pub(crate) fn states(&self) -> Vec<SignalState> {
        self.tracks.values().filter_map(|track| track.state.clone()).collect()
    }
}

impl Track {
    /// The open problem, if a rule still finds it, as it stays while there is no sample.
    fn open_problem<'a>(&self, mut rules: impl Iterator<Item = &'a Rule>, gap: &SignalState) -> Option<SignalState> {
        let open = self.state.as_ref().filter(|state| state.verdict == Verdict::Problem)?;
        let rule = rules.find(|rule| rule.signal == open.signal && Some(&rule.name) == open.rule.as_ref())?;
        let since = open.not_measured.as_ref().map_or(open.sampled_unix_millis, |before| before.since_unix_millis);
        Some(SignalState {
            severity: open.severity.map(|severity| severity.min(rule.severity)),
            // A limit is raised by values only.
            action: Action::Report,
            message: Some(rule.message.clone()),
            sampled_unix_millis: gap.sampled_unix_millis,
            not_measured: Some(NotMeasured { since_unix_millis: since, reason: gap.detail.clone() }),
            ..open.clone()
        })
    }

    fn judge(&mut self, rules: &[&Rule], value: Value, blank: SignalState, signal: &Signal) -> SignalState {
        let Some(number) = value.number else {
            return SignalState { verdict: Verdict::NotApplicable, detail: value.detail, ..blank };
        };
        let mut worst: Option<(&Rule, Severity, Value)> = None;
        let mut action = Action::Report;
        for rule in rules {
            let window = self.windows.entry(rule.name.clone()).or_default();
            let breach = rule.is_breached(number).then(|| value.clone());
            if let Some(breach) = window.push(breach, rule) {
                action = action.max(rule.action);
                let severity = rule.severity.min(breach.at_most);
                if worst.as_ref().is_none_or(|(_, known, _)| *known < severity) {
                    worst = Some((rule, severity, breach));
                }
            }
        }
        // A healthy value is shown with the bound that would be passed first.
        let nearest = rules.iter().min_by(|a, b| a.distance(number).total_cmp(&b.distance(number)));
        let bound = nearest.map(|rule| rule.bound_text(signal.unit));
        let measured = |value: Value| {
            let Value { number, detail, devices, not_measured, .. } = value;
            SignalState { value: number, detail, devices, not_measured, ..blank.clone() }
        };
        match worst {
            Some((rule, severity, breach)) => SignalState {
                verdict: Verdict::Problem,
                severity: Some(severity),
                rule: Some(rule.name.clone()),
                action,
                message: Some(rule.message.clone()),
                bound: Some(rule.bound_text(signal.unit)),
                ..measured(breach)
            },
            None if rules.is_empty() => SignalState { verdict: Verdict::NotApplicable, ..measured(value) },
            None => SignalState { verdict: Verdict::Healthy, bound, ..measured(value) },
        }
    }

    fn keep(&mut self, mut state: SignalState) {
        let before = self.state.as_ref().map(|state| (state.verdict, state.since_unix_millis));
        state.since_unix_millis = match before {
            Some((verdict, since)) if verdict == state.verdict => since,
            _ => state.sampled_unix_millis,
        };
        self.state = Some(state);
    }
}

impl Window {
    /// Adds a sample; while enough were beyond the bound, the last of the worst values.
    fn push(&mut self, breach: Option<Value>, rule: &Rule) -> Option<Value> {
        self.breaches.push_back(breach);
        while self.breaches.len() > rule.samples.of {
            self.breaches.pop_front();
        }
        let bad = self.breaches.iter().flatten();
        if bad.clone().count() < rule.samples.bad {
            return None;
        }
        bad.max_by_key(|value| value.at_most).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors;
    use crate::rules::RulesText;

    struct Trial {
        judge: Judge,
        minute: u64,
    }

    impl Trial {
        /// Rules of signal `pids`: 2 of 3 above 50 are a warning, 1 of 1 above 90 is critical.
        fn new() -> Self {
            let rule = |name: &str, bound, bad, of, severity: &str| {
                format!(
                    r#"{{"name": "{name}", "signal": "pids", "is": "above", "bound": {bound}, "message": "M.",
                         "samples": {{"bad": {bad}, "of": {of}}}, "severity": "{severity}"}}"#
                )
            };
            let text = [rule("pids-nearly-used-up", 50, 2, 3, "warning"), rule("pids-gone", 90, 1, 1, "critical")];
            let mut judge = Judge::default();
            let text = format!(r#"{{"rules": [{}]}}"#, text.join(","));
            judge.adopt(Rules::read(&[RulesText { source: "test", text: &text }]));
            Self { judge, minute: 0 }
        }

        fn reads(&mut self, read: Result<f64, Gap>) -> (Verdict, Option<Severity>, u64) {
            self.minute += 1;
            let read = read.map(|number| Value {
                number: Some(number),
                detail: String::new(),
                at_most: Severity::Critical,
                devices: Vec::new(),
                not_measured: None,
            });
            let signal = collectors::signal("pids").unwrap();
            let reading =
                Reading { signal, every_seconds: 60, read, hardware: Hardware::default(), unix_millis: self.minute };
            self.judge.record(reading);
            let state = self.judge.states().pop().unwrap();
            (state.verdict, state.severity, state.since_unix_millis)
        }
    }

    #[test]
    fn problem_starts_after_enough_bad_and_ends_after_good_samples() {
        let mut trial = Trial::new();
        let warning = Some(Severity::Warning);
        assert_eq!(trial.reads(Ok(60.0)), (Verdict::Healthy, None, 1));
        assert_eq!(trial.reads(Ok(60.0)), (Verdict::Problem, warning, 2));
        assert_eq!(trial.reads(Ok(95.0)), (Verdict::Problem, Some(Severity::Critical), 2), "not a new problem");
        assert_eq!(trial.reads(Ok(1.0)), (Verdict::Problem, warning, 2), "2 of 3");
        assert_eq!(trial.reads(Ok(1.0)), (Verdict::Healthy, None, 5));
    }

    #[test]
    fn healthy_value_is_shown_with_the_bound_that_is_passed_first() {
        let rule = |name: &str, is: &str, bound| {
            format!(r#"{{"name": "{name}", "signal": "pids", "is": "{is}", "bound": {bound}, "message": "M."}}"#)
        };
        for (rules, bound) in [
            ([rule("pids-nearly-used-up", "above", 90), rule("pids-many", "above", 70)], "at most 70 %"),
            ([rule("pids-nearly-used-up", "above", 70), rule("pids-many", "above", 90)], "at most 70 %"),
            ([rule("pids-nearly-used-up", "below", 10), rule("pids-many", "below", 30)], "at least 30 %"),
        ] {
            let (mut trial, text) = (Trial::new(), format!(r#"{{"rules": [{}]}}"#, rules.join(",")));
            trial.judge.adopt(Rules::read(&[RulesText { source: "test", text: &text }]));
            trial.reads(Ok(50.0));
            assert_eq!(trial.judge.states()[0].bound.as_deref(), Some(bound));
        }
    }

    #[test]
    fn open_problem_stays_while_it_cannot_be_measured() {
        let mut trial = Trial::new();
        let critical = |since| (Verdict::Problem, Some(Severity::Critical), since);
        assert_eq!(trial.reads(Err(Gap::unknown("hangs"))), (Verdict::Unknown, None, 1), "no problem is open");
        assert_eq!(trial.reads(Ok(95.0)), critical(2));
        for (minute, gap) in [(3, Gap::unknown("hangs")), (4, Gap::Waiting)] {
            assert_eq!(trial.reads(Err(gap.clone())), critical(2));
            let state = trial.judge.states().pop().unwrap();
            let not_measured = NotMeasured { since_unix_millis: 2, reason: gap.to_string() };
            assert_eq!((state.not_measured, state.sampled_unix_millis), (Some(not_measured), minute));
            assert_eq!((state.value, state.rule.as_deref()), (Some(95.0), Some("pids-gone")));
        }
        assert_eq!(trial.reads(Ok(95.0)), critical(2));
        assert_eq!(trial.judge.states().pop().unwrap().not_measured, None);
        assert_eq!(trial.reads(Err(Gap::absent("gone"))), (Verdict::NotApplicable, None, 6));
        assert_eq!(trial.reads(Ok(60.0)), (Verdict::Healthy, None, 7), "the window began again");
        trial.reads(Ok(95.0));
        trial.judge.adopt(Rules::default());
        assert_eq!(trial.reads(Err(Gap::unknown("hangs"))), (Verdict::Unknown, None, 9), "no rule is about it");
    }
}
