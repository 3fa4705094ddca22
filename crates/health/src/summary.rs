//! The summary of a node, as its agent sends it to the controller: what is not healthy, and counts. At most 4 KiB.

pub mod poll;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde::{Deserialize, Serialize};

use crate::collector::Area;
use crate::collectors;
use crate::report::{Report, Verdict};
use crate::rules::{Action, Severity};

/// The longest summary, as JSON.
pub const SUMMARY_MAX: usize = 4096;

/// The longest message of a check, in characters.
const MESSAGE_MAX: usize = 200;

/// The check of an agent that measures nothing, because its setting HEALTH says so.
pub const HEALTH_OFF: &str = "HealthOff";

/// The only version so far. A reader accepts later ones, whose fields are the same and more.
pub const VERSION: u32 = 1;

/// A node in short.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Summary {
    /// [`VERSION`].
    pub version: u32,
    /// The Node's name.
    pub node: String,
    /// The instance's OCID, once known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// The instance's shape, once known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<String>,
    /// The agent's version.
    pub agent: String,
    /// The version of the controller's rules that are in force, empty without any. An agent that takes none, because it measures
    /// nothing or is of 0.2.0, has no version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller_rules: Option<String>,
    /// Whether new pods can start.
    pub ready: bool,
    /// How many signals have which verdict.
    pub counts: Counts,
    /// What is not healthy, the worst first.
    pub checks: Vec<Check>,
    /// How many checks did not fit.
    pub left_out: usize,
}

/// How many signals have which verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Counts {
    /// [`Verdict::Problem`].
    pub problem: u32,
    /// [`Verdict::Unknown`].
    pub unknown: u32,
    /// [`Verdict::Healthy`].
    pub healthy: u32,
    /// [`Verdict::NotApplicable`].
    pub not_applicable: u32,
}

/// A signal or a condition of the agent that is not healthy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// The signal's name or the condition's reason.
    pub name: String,
    /// The object, if there can be several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// What it is about.
    pub area: Area,
    /// A problem, or unknown.
    pub verdict: Verdict,
    /// How bad a problem is.
    pub severity: Severity,
    /// What the agent does about it, if the controller permits.
    #[serde(default, skip_serializing_if = "Action::is_report")]
    pub action: Action,
    /// State and effect.
    pub message: String,
    /// Since when, in milliseconds since 1970.
    pub since_unix_millis: u64,
}

impl Summary {
    /// Adds the checks of a report, and counts its signals.
    #[must_use]
    pub fn with(mut self, report: &Report) -> Self {
        if report.is_off {
            self.checks.push(Check {
                name: HEALTH_OFF.to_owned(),
                subject: None,
                area: Area::Host,
                verdict: Verdict::Unknown,
                severity: Severity::Warning,
                action: Action::Report,
                message: "The agent measures no health signal (HEALTH=off).".to_owned(),
                since_unix_millis: 0,
            });
        }
        self.controller_rules.clone_from(&report.controller_rules);
        for state in &report.signals {
            let count = match state.verdict {
                Verdict::Problem => &mut self.counts.problem,
                Verdict::Unknown => &mut self.counts.unknown,
                Verdict::Healthy => &mut self.counts.healthy,
                Verdict::NotApplicable => &mut self.counts.not_applicable,
            };
            *count += 1;
            if matches!(state.verdict, Verdict::Problem | Verdict::Unknown) {
                let message = match &state.message {
                    Some(message) => format!("{message} {}", state.detail),
                    None => state.detail.clone(),
                };
                self.checks.push(Check {
                    name: state.signal.clone(),
                    subject: None,
                    area: collectors::area(&state.signal),
                    verdict: state.verdict,
                    severity: state.severity.unwrap_or_default(),
                    action: state.action,
                    message,
                    since_unix_millis: state.since_unix_millis,
                });
            }
        }
        self
    }

    /// Replaces the check of a name, or adds or removes it, and sorts the checks.
    #[must_use]
    pub fn with_check(mut self, name: &str, check: Option<Check>) -> Self {
        self.checks.retain(|other| other.name != name);
        self.checks.extend(check);
        self.checks.sort_by(|a, b| a.rank().cmp(&b.rank()));
        self
    }

    /// Sorts the checks, the worst first, and leaves out what makes the summary longer than [`SUMMARY_MAX`].
    #[must_use]
    pub fn bounded(mut self) -> Self {
        for check in &mut self.checks {
            check.message = vcn::excerpt(&check.message, MESSAGE_MAX).into_owned();
        }
        self.checks.sort_by(|a, b| a.rank().cmp(&b.rank()));
        while serde_json::to_vec(&self).map_or(0, |text| text.len()) > SUMMARY_MAX && self.checks.pop().is_some() {
            self.left_out += 1;
        }
        self
    }

    /// The version of the states in it, as an HTTP `ETag`. Values and messages do not change it, nor does what fits: take it
    /// before [`Self::bounded`].
    pub fn etag(&self) -> String {
        let mut hasher = DefaultHasher::new();
        (self.version, &self.node, &self.instance, &self.shape, &self.agent, &self.controller_rules).hash(&mut hasher);
        (self.ready, self.counts).hash(&mut hasher);
        for check in &self.checks {
            (&check.name, &check.subject, check.verdict, check.severity, check.action, check.since_unix_millis)
                .hash(&mut hasher);
        }
        format!("\"{:016x}\"", hasher.finish())
    }

    /// The worst severity of a problem in an area.
    pub fn worst(&self, area: Area) -> Option<Severity> {
        let problems = self.checks.iter().filter(|check| check.area == area && check.verdict == Verdict::Problem);
        problems.map(|check| check.severity).max()
    }
}

impl Check {
    fn rank(&self) -> impl Ord + '_ {
        (self.verdict, std::cmp::Reverse(self.severity), self.since_unix_millis, &self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors;
    use crate::report::SignalState;

    fn state(signal: &str, verdict: Verdict) -> SignalState {
        SignalState { verdict, ..SignalState::blank(collectors::signal(signal).unwrap(), 60, 1000) }
    }

    #[test]
    fn summary_has_counts_and_what_is_not_healthy() {
        let signals = vec![
            state("pids", Verdict::Healthy),
            state("tcp_retransmits", Verdict::Unknown),
            SignalState { severity: Some(Severity::Critical), ..state("conntrack_use", Verdict::Problem) },
        ];
        let summary = Summary::default().with(&Report { signals, ..Report::default() }).bounded();
        assert_eq!((summary.counts.problem, summary.counts.unknown, summary.counts.healthy), (1, 1, 1));
        let names: Vec<_> = summary.checks.iter().map(|check| check.name.as_str()).collect();
        assert_eq!(names, ["conntrack_use", "tcp_retransmits"]);
        assert_eq!((summary.worst(Area::Network), summary.worst(Area::Host)), (Some(Severity::Critical), None));
    }

    #[test]
    fn longest_summary_keeps_the_worst_within_the_bound() {
        let check = |number: u32, severity| Check {
            name: format!("check-{number}"),
            subject: None,
            area: Area::Host,
            verdict: Verdict::Problem,
            severity,
            action: Action::Report,
            message: "ü".repeat(5000),
            since_unix_millis: 1,
        };
        let mut checks: Vec<_> = (0..50).map(|number| check(number, Severity::Warning)).collect();
        checks.push(check(99, Severity::Critical));
        let summary = Summary { checks, ..Summary::default() }.bounded();
        assert!(serde_json::to_vec(&summary).unwrap().len() <= SUMMARY_MAX);
        assert_eq!((summary.checks[0].name.as_str(), summary.checks.len() + summary.left_out), ("check-99", 51));
    }

    #[test]
    fn etag_changes_with_states_and_not_with_messages() {
        let with = |verdict, detail: &str| {
            let state = SignalState { detail: detail.to_owned(), ..state("pids", verdict) };
            Summary::default().with(&Report { signals: vec![state], ..Report::default() }).etag()
        };
        assert_eq!(with(Verdict::Problem, "81 %"), with(Verdict::Problem, "82 %"));
        assert_ne!(with(Verdict::Problem, ""), with(Verdict::Unknown, ""));
    }

    #[test]
    fn later_versions_with_more_fields_are_read() {
        let text = r#"{"version": 2, "node": "a", "new": 1, "checks": []}"#;
        assert_eq!(serde_json::from_str::<Summary>(text).unwrap().node, "a");
    }
}
