//! What the leader knows of all nodes' agents, and when it polls each. Pure: time and chance are parameters.

mod agent_record;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use channel::Peer;
use health::Summary;
use health::fleet::{FleetNode, NodeState};
use health::summary::Check;
use health::summary::poll::NodeReport;
use tokio::time::Instant;

use crate::fleet::agents::NoPeer;
use crate::fleet::judge::AgentFacts;
use crate::fleet::permits::Permits;
use crate::fleet::poll::{Answer, Poll, PollLimits};
use crate::fleet::roster::agent_record::AgentRecord;
use crate::fleet::rules::FleetRules;
use crate::fleet::schedule::{DueTime, Lane, Schedule};

/// What is known of a node's agent, apart from the roster.
#[derive(Clone, Debug, Default)]
pub(crate) enum AgentView {
    /// This leader has not heard of it yet.
    #[default]
    Pending,
    /// It does not answer, or there is none.
    Silent,
    Answered(Arc<Summary>),
}

/// What the API server has of a Node.
#[derive(Clone, Debug, Default)]
pub(crate) struct TrackedNode<'a> {
    pub name: &'a str,
    pub report: NodeReport,
    /// What is shown with the answer of its agent.
    pub findings: Vec<Check>,
}

#[derive(Debug)]
pub(crate) struct Roster {
    began: Instant,
    schedule: Schedule,
    silence: Duration,
    /// Whether something happened that may change a judgement.
    has_news: bool,
    agents: HashMap<Arc<str>, AgentRecord>,
    sweep: Sweep,
    permits: Permits,
    rules: Option<Arc<FleetRules>>,
}

/// One request to each agent.
#[derive(Debug)]
struct Sweep {
    began: Instant,
    left: HashSet<Arc<str>>,
    last: Option<Duration>,
}

impl AgentView {
    /// The version of an agent that answers, and is of a release without tasks.
    pub(crate) fn version_without_tasks(&self) -> Option<&str> {
        match self {
            Self::Answered(summary) if summary.node_policy.is_none() => Some(&summary.agent),
            Self::Answered(_) | Self::Pending | Self::Silent => None,
        }
    }
}

impl Roster {
    /// Of a leader that begins now.
    pub(crate) fn new(PollLimits { interval, silence }: PollLimits, now: Instant) -> Self {
        Self {
            began: now,
            // An agent that answers each request must not be silent in between.
            schedule: Schedule::new(interval.min(silence * 4 / 5), now),
            silence,
            has_news: false,
            agents: HashMap::new(),
            sweep: Sweep { began: now, left: HashSet::new(), last: None },
            permits: Permits::default(),
            rules: None,
        }
    }

    /// How long after its last answer an agent is silent, whatever the interval.
    pub(crate) const fn bound(&self) -> Duration {
        self.silence
    }

    /// Since when this leader polls.
    pub(crate) const fn began(&self) -> Instant {
        self.began
    }

    /// What agents must have from now on.
    pub(crate) fn set_rules(&mut self, rules: Arc<FleetRules>) {
        self.rules = Some(rules);
    }

    /// The version of the rules that agents must have, once it is known.
    pub(crate) fn rules_version(&self) -> Option<&str> {
        self.rules.as_ref().map(|rules| rules.version.as_str())
    }

    /// How long the last sweep took.
    pub(crate) const fn last_sweep(&self) -> Option<Duration> {
        self.sweep.last
    }

    /// A node's agent appeared, changed or went.
    pub(crate) fn set_peer(&mut self, node: &Arc<str>, peer: Result<Peer, NoPeer>, now: Instant) {
        let known = self.agents.entry(node.clone()).or_insert_with(|| AgentRecord::new(now));
        if known.peer == peer {
            return;
        }
        known.peer = peer;
        known.failures = 0;
        self.has_news = true;
        match peer {
            Err(_) => {
                self.set_due(node, None);
                self.sweep.left.remove(node);
            }
            Ok(_) => {
                known.error = None;
                if self.sweep.last.is_none() {
                    self.sweep.left.insert(node.clone());
                }
                // An answer that is in flight schedules the next request itself.
                if !known.is_in_flight {
                    let first = self.schedule.first(now);
                    self.set_due(node, Some(first));
                }
            }
        }
    }

    /// All Nodes: those without an agent are known too, and a deleted Node is forgotten.
    pub(crate) fn track<'a>(&mut self, nodes: impl Iterator<Item = TrackedNode<'a>>, now: Instant) {
        let nodes: HashMap<&str, TrackedNode<'_>> = nodes.map(|node| (node.name, node)).collect();
        self.agents.retain(|node, record| record.peer.is_ok() || record.is_in_flight || nodes.contains_key(&**node));
        for (name, TrackedNode { report, findings, .. }) in nodes {
            if !self.agents.contains_key(name) {
                self.agents.insert(Arc::from(name), AgentRecord::new(now));
            }
            if let Some(record) = self.agents.get_mut(name) {
                (record.report, record.findings) = (report, findings);
            }
        }
    }

    /// The next request of a lane that is due.
    pub(crate) fn take(&mut self, lane: Lane, now: Instant) -> Option<Poll> {
        let (due, node) = self.schedule.next(lane).cloned()?;
        if due > now {
            return None;
        }
        self.set_due(&node, None);
        let nodes = self.agents.len();
        let record = self.agents.get_mut(&node)?;
        record.is_in_flight = true;
        let summary = record.summary.as_ref();
        let may_repair = summary.is_some_and(|summary| self.permits.grant(&node, summary, nodes, now));
        Some(Poll {
            peer: record.peer.ok()?,
            etag: record.etag(),
            may_repair,
            report: record.report.clone(),
            rules: self.rules.clone(),
            rules_version: summary.and_then(|summary| summary.controller_rules.clone()),
            node,
        })
    }

    /// What the controller itself found about a node, or that nothing is wrong.
    pub(crate) fn set_controller_check(&mut self, node: &str, check: Option<Check>) {
        if let Some(record) = self.agents.get_mut(node) {
            record.set_controller_check(check);
        }
    }

    /// Records what Oracle reports about a node's machine.
    pub(crate) fn set_host_events(&mut self, node: &str, checks: Vec<Check>) {
        if let Some(record) = self.agents.get_mut(node) {
            record.set_host_events(checks);
        }
    }

    /// Oracle's reports about the machines of all nodes.
    pub(crate) fn host_events(&self) -> impl Iterator<Item = &Check> {
        self.agents.values().flat_map(|it| &it.host_events)
    }

    /// The shape that a node's agent reported.
    pub(crate) fn shape(&self, node: &str) -> Option<&str> {
        self.agents.get(node)?.summary.as_ref()?.shape.as_deref()
    }

    /// When the next request of a lane is due.
    pub(crate) fn next_due(&self, lane: Lane) -> Option<Instant> {
        self.schedule.next(lane).map(|(due, _)| *due)
    }

    /// The result of a request: an answer, or why there is none. `chance` is in 0.0–1.0, for the jitter.
    pub(crate) fn answered(&mut self, node: &Arc<str>, result: Result<Answer, String>, now: Instant, chance: f64) {
        self.schedule.set_agents(self.agents.len());
        let Some(record) = self.agents.get_mut(node) else { return };
        record.is_in_flight = false;
        if record.failures == 0 {
            record.swept = Some(now);
        }
        self.has_news |= record.failures > 0 || result != Ok(Answer::Unchanged);
        let due = match result {
            Ok(answer) => {
                record.answer(answer, now);
                self.schedule.regular(node, now)
            }
            Err(error) => {
                record.fail(&error);
                self.schedule.retry(record.failures, now, chance)
            }
        };
        let due = record.peer.is_ok().then_some(due);
        self.set_due(node, due);
        self.sweep.left.remove(node);
        if self.sweep.left.is_empty() {
            let reachable = self.agents.iter().filter(|(_, record)| record.peer.is_ok());
            let left = reachable.map(|(node, _)| node.clone()).collect();
            self.sweep = Sweep { began: now, left, last: Some(now.saturating_duration_since(self.sweep.began)) };
        }
    }

    /// Whether something happened since the last call that may change a judgement. Time alone may change one, too.
    pub(crate) const fn take_news(&mut self) -> bool {
        std::mem::replace(&mut self.has_news, false)
    }

    /// What is known of a node's agent, to keep.
    pub(crate) fn agent(&self, node: &str, now: Instant) -> AgentView {
        self.agents.get(node).map_or(AgentView::Pending, |record| record.view(now, self.silence))
    }

    pub(crate) fn facts(&self, node: &str, now: Instant) -> AgentFacts<'_> {
        let record = self.agents.get(node);
        record.map_or(AgentFacts::Pending { is_failing: false }, |record| record.facts(now, self.silence))
    }

    /// When a node's agent last answered.
    pub(crate) fn last_answer(&self, node: &str) -> Option<Instant> {
        self.agents.get(node)?.answered()
    }

    /// Polls a node's agent as soon as its last answer is this old, unless its next poll is earlier. Returns whether the poll moved.
    pub(crate) fn poll_within(&mut self, node: &str, age: Duration, now: Instant) -> bool {
        let Some((name, record)) = self.agents.get_key_value(node) else { return false };
        let at = record.answered().map_or(now, |answered| now.max(answered + age));
        let is_later = matches!(record.due, Some((Lane::Regular, due)) if due > at);
        let name = name.clone();
        if is_later {
            self.set_due(&name, Some((Lane::Regular, at)));
        }
        is_later
    }

    /// Whether a node's last regular request ended within the time by which the bound exceeds the interval. At any time these
    /// nodes are an even sample of all, and a node that passes the bound failed before the sample was taken.
    pub(crate) fn is_in_sample(&self, node: &str, now: Instant) -> bool {
        let window = self.bound().saturating_sub(self.schedule.interval());
        let swept = self.agents.get(node).and_then(|record| record.swept);
        swept.is_some_and(|swept| now.saturating_duration_since(swept) <= window)
    }

    /// What is shown of a node.
    pub(crate) fn node(&self, name: &str, now: Instant) -> FleetNode {
        let unknown = || FleetNode { name: name.to_owned(), ..FleetNode::default() };
        self.agents.get(name).map_or_else(unknown, |record| record.shown(name, now, self.silence))
    }

    /// How many nodes have which state.
    pub(crate) fn states(&self, now: Instant) -> BTreeMap<NodeState, usize> {
        let mut states = BTreeMap::new();
        for record in self.agents.values() {
            *states.entry(record.state(now, self.silence)).or_default() += 1;
        }
        states
    }

    /// The agent of a node.
    pub(crate) fn peer(&self, node: &str) -> Result<Peer, NoPeer> {
        self.agents.get(node).map_or(Err(NoPeer::NoPod), |record| record.peer)
    }

    /// The latest summaries of agents that are not silent, and the age of each.
    pub(crate) fn summaries(&self, now: Instant) -> impl Iterator<Item = (&Summary, Duration)> {
        let answered = self.agents.values().filter(move |record| !record.is_silent(now, self.silence));
        answered.filter_map(move |record| Some((record.summary.as_deref()?, record.age(now)?)))
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.agents.len()
    }

    fn set_due(&mut self, node: &Arc<str>, due: Option<DueTime>) {
        let Some(record) = self.agents.get_mut(node) else { return };
        let before = std::mem::replace(&mut record.due, due);
        self.schedule.replace(node, before, due);
    }
}
