//! What the leader knows of one node's agent. Pure: the time is a parameter.

use std::sync::Arc;
use std::time::Duration;

use channel::Peer;
use health::Summary;
use health::fleet::{CLOUD_AGENT_PLUGINS, FleetNode, NodeState};
use health::summary::Check;
use health::summary::poll::NodeReport;
use tokio::time::Instant;

use crate::fleet::agents::NoPeer;
use crate::fleet::judge::AgentFacts;
use crate::fleet::poll::Answer;
use crate::fleet::roster::AgentView;
use crate::fleet::schedule::DueTime;

/// The longest kept error, in characters.
const ERROR_MAX: usize = 300;

#[derive(Debug)]
pub(super) struct AgentRecord {
    pub(super) peer: Result<Peer, NoPeer>,
    pub(super) report: NodeReport,
    /// What the API server shows of it.
    pub(super) findings: Vec<Check>,
    /// What Oracle reports about its machine.
    pub(super) host_events: Vec<Check>,
    known_since: Instant,
    /// Its next request; none while one is in flight.
    pub(super) due: Option<DueTime>,
    pub(super) is_in_flight: bool,
    answered: Option<Instant>,
    /// When its last regular request ended, with an answer or without. Retries do not count.
    pub(super) swept: Option<Instant>,
    pub(super) failures: u32,
    pub(super) error: Option<String>,
    etag: Option<String>,
    /// The last answer, with the controller's check.
    pub(super) summary: Option<Arc<Summary>>,
    /// What the controller itself found.
    check: Option<Check>,
}

impl AgentRecord {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            peer: Err(NoPeer::NoPod),
            report: NodeReport { allocatable_memory: None, allocatable_gpus: None, runtime: None },
            findings: Vec::new(),
            host_events: Vec::new(),
            known_since: now,
            due: None,
            is_in_flight: false,
            answered: None,
            swept: None,
            failures: 0,
            error: None,
            etag: None,
            summary: None,
            check: None,
        }
    }

    pub(super) fn answer(&mut self, answer: Answer, now: Instant) {
        self.answered = Some(now);
        (self.failures, self.error) = (0, None);
        if let Answer::Changed(summary, etag) = answer {
            let summary = match &self.summary {
                Some(before) => summary.keeping(before),
                None => *summary,
            };
            let summary = summary.with_check(CLOUD_AGENT_PLUGINS.name, self.check.clone());
            (self.summary, self.etag) = (Some(Arc::new(summary)), etag);
        }
    }

    /// Records that there is no answer.
    pub(super) fn fail(&mut self, error: &str) {
        self.failures = self.failures.saturating_add(1);
        self.error = Some(error.chars().take(ERROR_MAX).collect());
    }

    /// What the controller itself found, or that nothing is wrong. The time of an earlier check with the same verdict stays.
    pub(super) fn set_controller_check(&mut self, mut check: Option<Check>) {
        if let (Some(check), Some(before)) = (&mut check, &self.check)
            && check.verdict == before.verdict
        {
            check.since_unix_millis = before.since_unix_millis;
        }
        if self.check != check {
            let summary = self.summary.as_deref().cloned();
            self.summary = summary.map(|it| Arc::new(it.with_check(CLOUD_AGENT_PLUGINS.name, check.clone())));
            self.check = check;
        }
    }

    /// Records what Oracle reports about the machine. A check with the same verdict keeps its time.
    pub(super) fn set_host_events(&mut self, mut checks: Vec<Check>) {
        for check in &mut checks {
            let same = self.host_events.iter().find(|it| (&it.name, it.verdict) == (&check.name, check.verdict));
            check.since_unix_millis = same.unwrap_or(&*check).since_unix_millis;
        }
        self.host_events = checks;
    }

    /// The version of the last answer.
    pub(super) fn etag(&self) -> Option<String> {
        self.etag.clone().filter(|_| self.summary.is_some())
    }

    /// When its agent last answered.
    pub(super) const fn answered(&self) -> Option<Instant> {
        self.answered
    }

    /// How long ago its agent answered.
    pub(super) fn age(&self, now: Instant) -> Option<Duration> {
        self.answered.map(|answered| now.saturating_duration_since(answered))
    }

    /// Whether its agent has not answered for longer than the bound.
    pub(super) fn is_silent(&self, now: Instant, bound: Duration) -> bool {
        now.saturating_duration_since(self.answered.unwrap_or(self.known_since)) > bound
    }

    /// What is known of it, to keep.
    pub(super) fn view(&self, now: Instant, bound: Duration) -> AgentView {
        match &self.summary {
            _ if self.is_silent(now, bound) => AgentView::Silent,
            Some(summary) => AgentView::Answered(summary.clone()),
            None => AgentView::Pending,
        }
    }

    pub(super) fn facts(&self, now: Instant, bound: Duration) -> AgentFacts<'_> {
        let is_failing = self.is_failing();
        match &self.summary {
            _ if self.is_silent(now, bound) => AgentFacts::Silent { has_agent: self.peer != Err(NoPeer::NoPod) },
            Some(summary) => AgentFacts::Answered { summary, is_failing },
            None => AgentFacts::Pending { is_failing },
        }
    }

    pub(super) fn shown(&self, name: &str, now: Instant, bound: Duration) -> FleetNode {
        FleetNode {
            name: name.to_owned(),
            instance: None,
            state: self.state(now, bound),
            age_seconds: self.age(now).map(|age| age.as_secs()),
            error: self.peer.err().map(|error| error.to_string()).or_else(|| self.error.clone()),
            summary: self.summary.as_deref().cloned(),
            findings: self.findings.iter().chain(&self.host_events).cloned().collect(),
        }
    }

    /// The worst of what is shown: the last answer, if it is not too old, that there was none since, and the controller's findings.
    pub(super) fn state(&self, now: Instant, bound: Duration) -> NodeState {
        let fresh = self.summary.as_ref().filter(|_| !self.is_silent(now, bound));
        let answered = fresh.map_or(NodeState::Unknown, |summary| NodeState::of(summary));
        let unanswered = if self.is_failing() { NodeState::Unknown } else { NodeState::Healthy };
        let found = NodeState::of_checks(self.findings.iter().chain(&self.host_events));
        found.min(answered).min(unanswered)
    }

    const fn is_failing(&self) -> bool {
        self.failures > 0 || self.peer.is_err()
    }
}
