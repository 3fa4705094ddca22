//! The results as data: the same value feeds metrics, the command line and, later, the controller.

use serde::{Deserialize, Serialize};

use crate::hardware::device::{Device, FaultyDevice};
use crate::signal::{Signal, Unit};
use crate::verdict::{Action, Severity};

pub use crate::verdict::{NotMeasured, Verdict};

/// All results, by the signal's name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// One for each signal that was measured since the agent started.
    pub signals: Vec<SignalState>,
    /// The accelerators of the node, by PCI address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<Device>,
    /// The version of the controller's rules that are in force, empty without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller_rules: Option<String>,
    /// Whether nothing is measured, because the agent's setting HEALTH says so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_off: bool,
}

/// The result of a signal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SignalState {
    /// The name of the signal.
    pub signal: String,
    /// The verdict of its rule.
    pub verdict: Verdict,
    /// How bad a problem is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<Severity>,
    /// The rule that found the problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The value; of a problem, the last one beyond the bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// The unit of the value.
    pub unit: Unit,
    /// The bound, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<String>,
    /// The evidence, or why there is no value.
    pub detail: String,
    /// The devices that the evidence is about, where it is about devices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<FaultyDevice>,
    /// What the agent does about a problem.
    #[serde(default, skip_serializing_if = "Action::is_report")]
    pub action: Action,
    /// What the problem means.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Why a problem is not measured any more: it stays until a healthy sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_measured: Option<NotMeasured>,
    /// Whether it is unknown only because a rate needs a second sample.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_waiting: bool,
    /// When a collector last tried to measure it.
    pub sampled_unix_millis: u64,
    /// When this verdict was first seen.
    pub since_unix_millis: u64,
    /// How often it is measured.
    pub every_seconds: u64,
}

impl SignalState {
    pub(crate) fn blank(signal: &Signal, every_seconds: u64, unix_millis: u64) -> Self {
        Self {
            signal: signal.name.to_owned(),
            verdict: Verdict::Unknown,
            severity: None,
            rule: None,
            value: None,
            unit: signal.unit,
            bound: None,
            action: Action::Report,
            detail: String::new(),
            devices: Vec::new(),
            message: None,
            not_measured: None,
            is_waiting: false,
            sampled_unix_millis: unix_millis,
            since_unix_millis: unix_millis,
            every_seconds,
        }
    }

    /// It was not renewed for `age` seconds.
    fn expire(&mut self, age: u64) {
        self.action = Action::Report;
        if self.verdict == Verdict::Problem {
            let since_unix_millis = self.sampled_unix_millis;
            let reason = format!("no result for {age} s");
            self.not_measured.get_or_insert(NotMeasured { since_unix_millis, reason });
        } else {
            self.detail = format!("not measured for {age} s; before: {:?}, {}", self.verdict, self.detail);
            (self.verdict, self.since_unix_millis) = (Verdict::Unknown, self.sampled_unix_millis);
        }
    }
}

impl Report {
    /// The results as they count at a time: one that was not renewed for twice its interval is unknown, unless it is a problem.
    #[must_use]
    pub fn at(mut self, unix_millis: u64) -> Self {
        for state in &mut self.signals {
            let age = unix_millis.saturating_sub(state.sampled_unix_millis) / 1000;
            if age > 2 * state.every_seconds {
                state.expire(age);
            }
        }
        self
    }

    /// The same results, and none of them is repaired.
    #[must_use]
    pub fn without_repairs(mut self) -> Self {
        for state in &mut self.signals {
            state.action = Action::Report;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors;

    #[test]
    fn result_that_is_not_renewed_turns_unknown_unless_it_is_a_problem() {
        let signal = collectors::signal("pids").unwrap();
        let at = |verdict, millis| {
            let state = SignalState { verdict, ..SignalState::blank(signal, 60, 1000) };
            let state = Report { signals: vec![state], ..Report::default() }.at(millis).signals.remove(0);
            (state.verdict, state.not_measured)
        };
        assert_eq!(at(Verdict::Healthy, 121_000), (Verdict::Healthy, None));
        assert_eq!(at(Verdict::Healthy, 122_000), (Verdict::Unknown, None));
        assert_eq!(at(Verdict::Problem, 121_000), (Verdict::Problem, None));
        let not_measured = NotMeasured { since_unix_millis: 1000, reason: "no result for 121 s".to_owned() };
        assert_eq!(at(Verdict::Problem, 122_000), (Verdict::Problem, Some(not_measured)));
    }
}
