//! What the leader knows of each node's agent. Pure: time and chance are parameters.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use channel::Peer;
use health::Summary;
use health::fleet::{CLOUD_AGENT_PLUGINS, FleetNode, NodeState};
use health::summary::Check;
use health::summary::poll::NodeReport;
use tokio::time::Instant;

use crate::fleet::agents::NoPeer;
use crate::fleet::answer::Answer;
use crate::fleet::judge::AgentFacts;
use crate::fleet::permits::Permits;
use crate::fleet::rules::FleetRules;
use crate::fleet::schedule::{DueTime, Lane, Schedule};

/// The longest kept error, in characters.
const ERROR_MAX: usize = 300;

/// A request to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Poll {
    pub node: Arc<str>,
    /// Its agent.
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

/// How often agents are asked, and how long they may be silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PollLimits {
    /// The most time between two requests to an agent; in a small fleet it is less.
    pub interval: Duration,
    /// How long after its last answer an agent is silent.
    pub silence: Duration,
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

#[derive(Debug)]
struct AgentRecord {
    peer: Result<Peer, NoPeer>,
    report: NodeReport,
    /// What the API server shows of it.
    findings: Vec<Check>,
    /// What Oracle reports about its machine.
    host_events: Vec<Check>,
    known_since: Instant,
    /// Its next request; none while one is in flight.
    due: Option<DueTime>,
    is_asked: bool,
    answered: Option<Instant>,
    /// When its last regular request ended, with an answer or without. Retries do not count.
    swept: Option<Instant>,
    failures: u32,
    error: Option<String>,
    etag: Option<String>,
    /// The last answer, with the controller's check.
    summary: Option<Arc<Summary>>,
    /// What the controller itself found.
    check: Option<Check>,
}

/// One request to each agent.
#[derive(Debug)]
struct Sweep {
    began: Instant,
    left: HashSet<Arc<str>>,
    last: Option<Duration>,
}

#[cfg(test)]
impl PollLimits {
    /// The defaults.
    pub(crate) const DEFAULT: Self = Self { interval: Duration::from_mins(4), silence: Duration::from_mins(5) };
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

    /// Since when this leader asks.
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
                if !known.is_asked {
                    let first = self.schedule.first(now);
                    self.set_due(node, Some(first));
                }
            }
        }
    }

    /// All Nodes: those without an agent are known too, and a deleted Node is forgotten.
    pub(crate) fn track<'a>(&mut self, nodes: impl Iterator<Item = TrackedNode<'a>>, now: Instant) {
        let nodes: HashMap<&str, TrackedNode<'_>> = nodes.map(|node| (node.name, node)).collect();
        self.agents.retain(|node, record| record.peer.is_ok() || record.is_asked || nodes.contains_key(&**node));
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
        record.is_asked = true;
        let summary = record.summary.as_ref();
        let may_repair = summary.is_some_and(|summary| self.permits.grant(&node, summary, nodes, now));
        Some(Poll {
            peer: record.peer.ok()?,
            etag: record.etag.clone().filter(|_| summary.is_some()),
            may_repair,
            report: record.report.clone(),
            rules: self.rules.clone(),
            rules_version: summary.and_then(|summary| summary.controller_rules.clone()),
            node,
        })
    }

    /// What the controller itself found about a node, or that nothing is wrong. The time of an earlier check with the same
    /// verdict stays.
    pub(crate) fn set_controller_check(&mut self, node: &str, mut check: Option<Check>) {
        let Some(record) = self.agents.get_mut(node) else { return };
        if let (Some(check), Some(before)) = (&mut check, &record.check)
            && check.verdict == before.verdict
        {
            check.since_unix_millis = before.since_unix_millis;
        }
        if record.check != check {
            let summary = record.summary.as_deref().cloned();
            record.summary = summary.map(|it| Arc::new(it.with_check(CLOUD_AGENT_PLUGINS.name, check.clone())));
            record.check = check;
        }
    }

    /// Records what Oracle reports about a node's machine. A check with the same verdict keeps its time.
    pub(crate) fn set_host_events(&mut self, node: &str, mut checks: Vec<Check>) {
        let Some(record) = self.agents.get_mut(node) else { return };
        for check in &mut checks {
            let same = record.host_events.iter().find(|it| (&it.name, it.verdict) == (&check.name, check.verdict));
            check.since_unix_millis = same.unwrap_or(&*check).since_unix_millis;
        }
        record.host_events = checks;
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
        record.is_asked = false;
        if record.failures == 0 {
            record.swept = Some(now);
        }
        self.has_news |= record.failures > 0 || result != Ok(Answer::Unchanged);
        let due = match result {
            Ok(answer) => {
                record.answered = Some(now);
                (record.failures, record.error) = (0, None);
                if let Answer::Changed(summary, etag) = answer {
                    let summary = match &record.summary {
                        Some(before) => summary.keeping(before),
                        None => *summary,
                    };
                    let summary = summary.with_check(CLOUD_AGENT_PLUGINS.name, record.check.clone());
                    (record.summary, record.etag) = (Some(Arc::new(summary)), etag);
                }
                self.schedule.regular(node, now)
            }
            Err(error) => {
                record.failures = record.failures.saturating_add(1);
                record.error = Some(error.chars().take(ERROR_MAX).collect());
                self.schedule.retry(record.failures, now, chance)
            }
        };
        let due = record.peer.is_ok().then_some(due);
        self.set_due(node, due);
        self.sweep.left.remove(node);
        if self.sweep.left.is_empty() {
            let asked = self.agents.iter().filter(|(_, record)| record.peer.is_ok());
            let left = asked.map(|(node, _)| node.clone()).collect();
            self.sweep = Sweep { began: now, left, last: Some(now.saturating_duration_since(self.sweep.began)) };
        }
    }

    /// Whether something happened since the last call that may change a judgement. Time alone may change one, too.
    pub(crate) const fn take_news(&mut self) -> bool {
        std::mem::replace(&mut self.has_news, false)
    }

    /// What is judged.
    pub(crate) fn facts(&self, node: &str, now: Instant) -> AgentFacts<'_> {
        let Some(record) = self.agents.get(node) else { return AgentFacts::Pending { is_failing: false } };
        let is_failing = record.failures > 0 || record.peer.is_err();
        match &record.summary {
            Some(summary) if !self.is_silent(record, now) => AgentFacts::Answered { summary, is_failing },
            _ if !self.is_silent(record, now) => AgentFacts::Pending { is_failing },
            _ => AgentFacts::Silent { has_agent: record.peer != Err(NoPeer::NoPod) },
        }
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
        let Some(record) = self.agents.get(name) else {
            return FleetNode { name: name.to_owned(), ..FleetNode::default() };
        };
        FleetNode {
            name: name.to_owned(),
            instance: None,
            state: self.state(record, now),
            age_seconds: record.answered.map(|answered| now.saturating_duration_since(answered).as_secs()),
            error: record.peer.err().map(|error| error.to_string()).or_else(|| record.error.clone()),
            summary: record.summary.as_deref().cloned(),
            findings: record.findings.iter().chain(&record.host_events).cloned().collect(),
        }
    }

    /// How many nodes have which state.
    pub(crate) fn states(&self, now: Instant) -> BTreeMap<NodeState, usize> {
        let mut states = BTreeMap::new();
        self.agents.values().for_each(|record| *states.entry(self.state(record, now)).or_default() += 1);
        states
    }

    /// The worst of what is shown: the last answer, if it is not too old, that there was none since, and the controller's findings.
    fn state(&self, record: &AgentRecord, now: Instant) -> NodeState {
        let fresh = record.summary.as_ref().filter(|_| !self.is_silent(record, now));
        let answered = fresh.map_or(NodeState::Unknown, |summary| NodeState::of(summary));
        let is_failing = record.failures > 0 || record.peer.is_err();
        let unanswered = if is_failing { NodeState::Unknown } else { NodeState::Healthy };
        let found = [&record.findings, &record.host_events].map(|checks| NodeState::of_checks(checks));
        found.into_iter().fold(answered.min(unanswered), NodeState::min)
    }

    /// The agent of a node.
    pub(crate) fn peer(&self, node: &str) -> Result<Peer, NoPeer> {
        self.agents.get(node).map_or(Err(NoPeer::NoPod), |record| record.peer)
    }

    /// The latest summaries of agents that are not silent, and the age of each.
    pub(crate) fn summaries(&self, now: Instant) -> impl Iterator<Item = (&Summary, Duration)> {
        self.agents.values().filter(move |record| !self.is_silent(record, now)).filter_map(move |record| {
            Some((record.summary.as_deref()?, now.saturating_duration_since(record.answered?)))
        })
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.agents.len()
    }

    fn is_silent(&self, record: &AgentRecord, now: Instant) -> bool {
        let since = record.answered.unwrap_or(record.known_since);
        now.saturating_duration_since(since) > self.bound()
    }

    fn set_due(&mut self, node: &Arc<str>, due: Option<DueTime>) {
        let Some(record) = self.agents.get_mut(node) else { return };
        let before = std::mem::replace(&mut record.due, due);
        self.schedule.replace(node, before, due);
    }
}

impl AgentRecord {
    const fn new(now: Instant) -> Self {
        Self {
            peer: Err(NoPeer::NoPod),
            report: NodeReport { allocatable_memory: None, allocatable_gpus: None, runtime: None },
            findings: Vec::new(),
            host_events: Vec::new(),
            known_since: now,
            due: None,
            is_asked: false,
            answered: None,
            swept: None,
            failures: 0,
            error: None,
            etag: None,
            summary: None,
            check: None,
        }
    }
}
