//! What rules say about a signal: a verdict, how bad it is, and what the agent does about it.

use serde::{Deserialize, Serialize};
use vcn::words;

/// The result of a rule for a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// A rule's bound was passed often enough.
    Problem,
    /// It could not be measured; the detail says why.
    Unknown,
    /// The value is within all bounds.
    Healthy,
    /// Nothing to judge on this node; the detail says why, or is the information itself.
    NotApplicable,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something is slower or less safe than it should be.
    #[default]
    Warning,
    /// Pods fail, or will soon.
    Critical,
}

/// What the agent does about a problem.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// The agent reports the problem.
    #[default]
    #[serde(alias = "Report")]
    Report,
    /// It reports it and raises the limit ([`crate::repair`]).
    #[serde(alias = "Repair")]
    Repair,
}

impl Action {
    /// Whether it is the default.
    pub fn is_report(&self) -> bool {
        *self == Self::Report
    }
}

/// A problem without a current value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NotMeasured {
    /// When it was last measured, in milliseconds since 1970.
    pub since_unix_millis: u64,
    /// Why it is not.
    pub reason: String,
}

impl Verdict {
    /// Its word in metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Problem => "problem",
            Self::Unknown => "unknown",
            Self::Healthy => "healthy",
            Self::NotApplicable => "not_applicable",
        }
    }
}

words!(Severity: Warning = "warning", Critical = "critical");

words!(Verdict: Problem, Unknown, Healthy, NotApplicable);
