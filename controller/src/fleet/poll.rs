//! A poll of an agent: the request, what it may answer, and how often it is sent.

use std::sync::Arc;
use std::time::Duration;

use channel::Peer;
use health::Summary;
use health::summary::poll::NodeReport;

use crate::fleet::rules::FleetRules;

/// A request to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Poll {
    pub node: Arc<str>,
    pub peer: Peer,
    /// The version that is known.
    pub etag: Option<String>,
    pub may_repair: bool,
    pub report: NodeReport,
    /// The rules that the agent must have, once they are known.
    pub rules: Option<Arc<FleetRules>>,
    /// The version that it has, by its last summary.
    pub rules_version: Option<String>,
}

/// What an agent answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// No state changed since the last answer.
    Unchanged,
    /// A summary, with its version.
    Changed(Box<Summary>, Option<String>),
}

/// How often agents are polled, and how long they may be silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PollLimits {
    /// The most time between two requests to an agent; in a small fleet it is less.
    pub interval: Duration,
    /// How long after its last answer an agent is silent.
    pub silence: Duration,
}

#[cfg(test)]
impl PollLimits {
    pub(crate) const DEFAULT: Self = Self { interval: Duration::from_mins(4), silence: Duration::from_mins(5) };
}
