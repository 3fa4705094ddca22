//! The summary of a node, as its agent sends it to the controller: what is not healthy, and counts. At most 4 KiB.

mod accelerators;
pub(crate) mod check;
mod node_policy;
pub mod poll;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde::{Deserialize, Serialize};

use crate::collectors;
use crate::reason::Reason;
use crate::report::Report;
use crate::signal::Area;
use crate::verdict::{Action, NotMeasured, Severity, Verdict};

pub use accelerators::AcceleratorSources;
pub use check::Check;
pub use node_policy::NodePolicyState;

/// The longest summary, as JSON.
pub const SUMMARY_MAX: usize = 4096;

/// The longest message of a check, and the longest reason why it is not measured, in characters.
const MESSAGE_MAX: usize = 200;
const REASON_MAX: usize = 100;

/// The most devices of a check, and the longest text of one, in characters. BM.GPU.H100.8 has 8 GPUs and 16 ports.
const DEVICES_MAX: usize = 32;
const DEVICE_TEXT_MAX: usize = 48;

/// The check of an agent that measures nothing, because its setting HEALTH says so.
pub const HEALTH_OFF: &str = "HealthOff";

/// The only version so far. A reader accepts later ones, whose fields are the same and more.
pub const VERSION: u32 = 1;

/// A node in short.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Summary {
    /// The format's number: [`VERSION`] of the writer.
    pub version: u32,
    /// The name of the Node object.
    pub node: String,
    /// The instance's OCID, once known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// The instance's shape, once known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<String>,
    /// The version of the agent.
    pub agent: String,
    /// The id of the machine's boot, which ends all earlier problems.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// When the agent started, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_unix_millis: Option<u64>,
    /// The version of the controller's rules that are in force, empty without any. An agent that takes none, because it measures
    /// nothing or is of 0.2.0, has no version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller_rules: Option<String>,
    /// Its policies, from an agent that takes policies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_policy: Option<NodePolicyState>,
    /// Units of systemd that operations of the controller started on the node, and that run now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub operation_units: Vec<String>,
    /// Whether new pods can start.
    pub ready: bool,
    /// How many signals have which verdict.
    pub counts: Counts,
    /// What is not healthy, the worst first.
    #[serde(deserialize_with = "accelerators::read_checks")]
    pub checks: Vec<Check>,
    /// What the agent sees of accelerators, on a node that has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accelerators: Option<AcceleratorSources>,
    /// How many checks did not fit.
    pub left_out: usize,
    /// All signals without a result: those that are unknown, and those that no collector has measured since the agent started.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_measured: Vec<String>,
}

/// How many signals have which verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Counts {
    /// The number of signals with [`Verdict::Problem`].
    pub problem: u32,
    /// The number of signals with [`Verdict::Unknown`].
    pub unknown: u32,
    /// The number of signals with [`Verdict::Healthy`].
    pub healthy: u32,
    /// The number of signals with [`Verdict::NotApplicable`].
    pub not_applicable: u32,
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
                devices: Vec::new(),
                since_unix_millis: 0,
                not_measured: None,
            });
        } else {
            let is_known = |signal: &str| report.signals.iter().any(|state| state.signal == signal);
            let missing = collectors::signals().map(|signal| signal.name).filter(|name| !is_known(name));
            self.not_measured.extend(missing.map(str::to_owned));
        }
        self.controller_rules.clone_from(&report.controller_rules);
        self.accelerators = AcceleratorSources::of(report);
        for state in &report.signals {
            let count = match state.verdict {
                Verdict::Problem => &mut self.counts.problem,
                Verdict::Unknown => &mut self.counts.unknown,
                Verdict::Healthy => &mut self.counts.healthy,
                Verdict::NotApplicable => &mut self.counts.not_applicable,
            };
            *count += 1;
            if state.verdict == Verdict::Unknown {
                self.not_measured.push(state.signal.clone());
            }
            if matches!(state.verdict, Verdict::Problem | Verdict::Unknown) && !state.is_waiting {
                let message = match &state.message {
                    Some(message) if !state.devices.is_empty() => message.clone(),
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
                    devices: state.devices.clone(),
                    since_unix_millis: state.since_unix_millis,
                    not_measured: state.not_measured.clone(),
                });
            }
        }
        self
    }

    /// Its critical problems by name, with their subjects.
    pub fn critical_problems(&self) -> impl Iterator<Item = String> + use<'_> {
        let is_critical = |check: &&Check| check.verdict == Verdict::Problem && check.severity == Severity::Critical;
        self.checks.iter().filter(is_critical).map(|check| match &check.subject {
            Some(subject) => format!("{}/{subject}", check.name),
            None => check.name.clone(),
        })
    }

    /// Replaces the check of a name, or adds or removes it, and sorts the checks.
    #[must_use]
    pub fn with_check(mut self, name: &str, check: Option<Check>) -> Self {
        self.checks.retain(|other| other.name != name);
        self.checks.extend(check);
        self.checks.sort_by(|a, b| a.rank().cmp(&b.rank()));
        self
    }

    /// Keeps the problems of an earlier summary that this one can neither confirm nor end: the agent was restarted, and has
    /// not measured them since. Another boot ends them.
    #[must_use]
    pub fn keeping(mut self, before: &Self) -> Self {
        if self.boot_id.is_none() || self.boot_id != before.boot_id {
            return self;
        }
        let is_starting = self.checks.iter().any(|check| check.name == Reason::Starting.as_str());
        // What the running agent measured, it ends itself, for example when its rule is switched off.
        let is_of_earlier_run = |check: &Check| {
            let last = check.not_measured.as_ref().map(|gap| gap.since_unix_millis);
            before.started_unix_millis != self.started_unix_millis
                || last.is_some_and(|last| Some(last) <= self.started_unix_millis)
        };
        let is_open = |check: &&Check| {
            let is_condition = || is_starting && collectors::signal(&check.name).is_none();
            check.verdict == Verdict::Problem
                && is_of_earlier_run(check)
                && (self.not_measured.contains(&check.name) || is_condition())
        };
        let open: Vec<Check> = before.checks.iter().filter(is_open).cloned().collect();
        if open.is_empty() {
            return self;
        }
        let are_all_counted = u32::try_from(self.not_measured.len()).is_ok_and(|all| all <= self.counts.unknown);
        for mut check in open {
            let is_same = |other: &Check| (&other.name, &other.subject) == (&check.name, &check.subject);
            if self.checks.iter().any(|other| is_same(other) && other.verdict == Verdict::Problem) {
                continue;
            }
            let unknown = self.checks.iter().find(|other| is_same(other));
            let reason = unknown.map_or("the agent was restarted", |unknown| &unknown.message);
            // A signal that waits for a second sample is counted and has no check; one that was not measured at all is not counted.
            let is_signal = collectors::signal(&check.name).is_some();
            let was_unknown = is_signal && (unknown.is_some() || are_all_counted);
            self.counts.unknown = self.counts.unknown.saturating_sub(u32::from(was_unknown));
            let since = self.started_unix_millis.unwrap_or(check.since_unix_millis);
            let gap = NotMeasured { since_unix_millis: since, reason: reason.to_owned() };
            check.not_measured.get_or_insert(gap);
            check.action = Action::Report;
            self.checks.retain(|other| (&other.name, &other.subject) != (&check.name, &check.subject));
            self.counts.problem += u32::from(is_signal);
            self.checks.push(check);
        }
        self.bounded()
    }

    /// Sorts the checks, the worst first, and leaves out what makes the summary longer than [`SUMMARY_MAX`]. The devices of the
    /// least important checks go first, because a problem without its devices is better than no problem.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        for check in &mut self.checks {
            check.message = vcn::excerpt(&check.message, MESSAGE_MAX).into_owned();
            check.devices.truncate(DEVICES_MAX);
            for device in &mut check.devices {
                device.shorten(DEVICE_TEXT_MAX);
            }
            if let Some(gap) = &mut check.not_measured {
                gap.reason = vcn::excerpt(&gap.reason, REASON_MAX).into_owned();
            }
        }
        self.checks.sort_by(|a, b| a.rank().cmp(&b.rank()));
        while serde_json::to_vec(&self).map_or(0, |text| text.len()) > SUMMARY_MAX {
            if let Some(check) = self.checks.iter_mut().rev().find(|check| !check.devices.is_empty()) {
                check.devices.clear();
            } else if self.checks.pop().is_some() {
                self.left_out += 1;
            } else {
                break;
            }
        }
        self
    }

    /// The version of the states in it, as an HTTP `ETag`. Values and messages do not change it, nor does what fits: take it
    /// before [`Self::bounded`].
    pub fn etag(&self) -> String {
        let mut hasher = DefaultHasher::new();
        (self.version, &self.node, &self.instance, &self.shape, &self.agent, &self.controller_rules).hash(&mut hasher);
        (&self.node_policy, &self.operation_units).hash(&mut hasher);
        (self.ready, self.counts, &self.boot_id, self.started_unix_millis, &self.not_measured).hash(&mut hasher);
        for check in &self.checks {
            (&check.name, &check.subject, check.verdict, check.severity, check.action, check.since_unix_millis)
                .hash(&mut hasher);
            check.not_measured.is_some().hash(&mut hasher);
            for device in &check.devices {
                (&device.address, &device.reason).hash(&mut hasher);
            }
        }
        format!("\"{:016x}\"", hasher.finish())
    }

    /// The worst severity of a problem in an area.
    pub fn worst(&self, area: Area) -> Option<Severity> {
        let problems = self.checks.iter().filter(|check| check.area == area && check.verdict == Verdict::Problem);
        problems.map(|check| check.severity).max()
    }
}

#[cfg(test)]
mod tests;
