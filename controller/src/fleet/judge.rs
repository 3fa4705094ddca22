//! Which conditions of Nodes to write: a pure function of what agents answered and what the Nodes have.

use std::time::Duration;

use api::ConditionStatus;
use health::report::Verdict;
use health::rules::Severity;
use health::summary::{Check, HEALTH_OFF};
use health::{Area, Summary};
use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use crate::cluster::node_condition::NodeCondition;
use crate::fleet::condition::NewCondition;

/// The reason of a condition that is True.
const HEALTHY: &str = "NoCriticalProblem";
/// The reason of a condition that is Unknown.
const SILENT: &str = "AgentSilent";
/// The most nodes that may turn Unknown at once, if they are more than [`MAX_UNKNOWN_PERCENT`].
const MAX_UNKNOWN_NODES: usize = 2;
/// The most nodes of a hundred that may turn Unknown at once.
const MAX_UNKNOWN_PERCENT: usize = 10;
/// The most messages in a condition, and the most characters of them together.
const MAX_MESSAGES: usize = 3;
const MESSAGE_MAX: usize = 400;
const REASON_MAX: usize = 64;

/// What is known of a node's agent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum AgentFacts<'a> {
    /// It has not answered this leader yet, and was not queried for long.
    Pending { is_failing: bool },
    /// It answered, within the bound.
    Answered { summary: &'a Summary, is_failing: bool },
    /// It has not answered for longer than the bound; without an agent, there is no Pod.
    Silent { has_agent: bool },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeFacts<'a> {
    pub name: &'a str,
    /// The version of the Node that was read.
    pub version: Option<&'a str>,
    /// Our conditions that it has.
    pub conditions: &'a [NodeCondition],
    pub agent: AgentFacts<'a>,
    /// Whether it is in the sample of nodes that were queried last.
    pub is_in_sample: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConditionWrite {
    pub node: String,
    /// The version of the Node that was read. A later one may have these conditions already.
    pub version: Option<String>,
    /// Its conditions that changed.
    pub conditions: Vec<NewCondition>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Judgement {
    /// The writes, the most urgent first.
    pub writes: Vec<ConditionWrite>,
    /// How many nodes turn Unknown, if these are so many that none is written.
    pub held: Option<usize>,
}

/// Holds Unknown conditions for some time after too many nodes did not answer. While a partition heals, its last silent nodes are
/// fewer than the bound and would be written, although nothing is wrong with them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UnknownHold {
    until: Option<Instant>,
}

impl UnknownHold {
    /// Applies it to a judgement of `now`. Each silent node must be queried again within `time`.
    pub(crate) fn apply(&mut self, judgement: &mut Judgement, now: Instant, time: Duration) {
        if judgement.held.is_some() {
            self.until = Some(now + time);
        } else if self.until.is_some_and(|until| now < until) {
            let writes = judgement.writes.len();
            judgement.writes.retain(|write| !write.conditions.iter().any(is_unknown));
            judgement.held = Some(writes - judgement.writes.len()).filter(|held| *held > 0);
        }
    }
}

/// Nodes, and how many of them turn Unknown.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    nodes: usize,
    turning: usize,
}

impl Count {
    fn add(&mut self, is_turning: bool) {
        self.nodes += 1;
        self.turning += usize::from(is_turning);
    }

    const fn is_too_many(self) -> bool {
        self.turning > MAX_UNKNOWN_NODES && self.turning * 100 > self.nodes * MAX_UNKNOWN_PERCENT
    }
}

/// Judges all nodes. When the first of many nodes passes the bound, most others have not been queried since they failed: the
/// sample of those that were queried last shows their share.
pub(crate) fn judge<'a>(nodes: impl Iterator<Item = NodeFacts<'a>>, now: Timestamp) -> Judgement {
    let mut judgement = Judgement::default();
    let (mut all, mut sample) = (Count::default(), Count::default());
    let mut is_any_unknown = false;
    for node in nodes {
        // A node where no agent runs, such as a virtual node, is not judged.
        if node.agent == (AgentFacts::Silent { has_agent: false }) && node.conditions.is_empty() {
            continue;
        }
        let is_turning = is_turning_unknown(&node);
        all.add(is_turning);
        if node.is_in_sample {
            sample.add(is_turning);
        }
        let conditions: Vec<_> = Area::ALL.into_iter().filter_map(|area| changed(&node, area, now)).collect();
        if !conditions.is_empty() {
            is_any_unknown |= conditions.iter().any(is_unknown);
            judgement.writes.push(ConditionWrite {
                node: node.name.to_owned(),
                version: node.version.map(str::to_owned),
                conditions,
            });
        }
    }
    // So many nodes do not fail at once: the leader is cut off, or the agents are.
    if is_any_unknown && (all.is_too_many() || sample.is_too_many()) {
        judgement.held = Some(all.turning);
        judgement.writes.retain(|write| !write.conditions.iter().any(is_unknown));
    }
    // A problem must not wait behind the first conditions of thousands of nodes.
    judgement
        .writes
        .sort_by_key(|write| write.conditions.iter().map(|new| urgency(new.condition.status)).min().unwrap_or(u8::MAX));
    judgement
}

/// All of these did not answer their last request: those that pass the bound first must not be written before the others
/// are counted.
fn is_turning_unknown(node: &NodeFacts<'_>) -> bool {
    let is_failing = match node.agent {
        AgentFacts::Pending { is_failing } | AgentFacts::Answered { is_failing, .. } => is_failing,
        AgentFacts::Silent { .. } => true,
    };
    let is_unknown_already = Area::ALL
        .into_iter()
        .filter(|area| has_condition(node, *area))
        .all(|area| node.conditions.iter().any(|has| has.area == area && has.status == ConditionStatus::Unknown));
    is_failing && !is_unknown_already
}

const fn urgency(status: ConditionStatus) -> u8 {
    match status {
        ConditionStatus::False => 0,
        ConditionStatus::Unknown => 1,
        ConditionStatus::True => 2,
    }
}

fn is_unknown(new: &NewCondition) -> bool {
    new.condition.status == ConditionStatus::Unknown
}

/// Whether a node has the condition of an area. Most nodes have no accelerators; an agent that was restarted and has not measured
/// yet does not know them.
fn has_condition(node: &NodeFacts<'_>, area: Area) -> bool {
    let is_stored = node.conditions.iter().any(|condition| condition.area == area);
    let (is_seen, is_off) = match node.agent {
        AgentFacts::Answered { summary, .. } => {
            (summary.accelerators.is_some(), summary.checks.iter().any(|check| check.name == HEALTH_OFF))
        }
        AgentFacts::Pending { .. } | AgentFacts::Silent { .. } => (is_stored, false),
    };
    area != Area::Accelerators || is_seen || is_stored && is_off
}

/// The condition that the node must have, if it has another one.
fn changed(node: &NodeFacts<'_>, area: Area, now: Timestamp) -> Option<NewCondition> {
    if !has_condition(node, area) {
        return None;
    }
    let has = node.conditions.iter().find(|condition| condition.area == area);
    let (status, reason, message) = match node.agent {
        AgentFacts::Pending { .. } => return None,
        AgentFacts::Silent { has_agent: false } if has.is_none() => return None,
        AgentFacts::Silent { .. } => {
            let message = format!("The agent does not answer. Run: kubectl oke-node node {}", node.name);
            (ConditionStatus::Unknown, SILENT.to_owned(), message)
        }
        AgentFacts::Answered { summary, .. } => of_summary(summary, area),
    };
    if has.is_some_and(|has| has.status == status && has.reason == reason) {
        return None;
    }
    // A new reason alone is not a transition.
    let since = has.filter(|has| has.status == status).and_then(|has| has.since).unwrap_or(now);
    Some(NewCondition { condition: NodeCondition { area, status, reason, since: Some(since) }, message })
}

fn of_summary(summary: &Summary, area: Area) -> (ConditionStatus, String, String) {
    let is_critical = |check: &&Check| {
        check.area == area && check.verdict == Verdict::Problem && check.severity == Severity::Critical
    };
    let mut critical: Vec<Check> = summary.checks.iter().filter(is_critical).flat_map(Check::per_device).collect();
    critical.sort_by(|a, b| (a.since_unix_millis, &a.name).cmp(&(b.since_unix_millis, &b.name)));
    let is_blind = area == Area::Accelerators && summary.accelerators.is_some_and(|sources| !sources.kernel_messages);
    let blind = if is_blind { " Kernel messages are not read: set agent.kernelLog." } else { "" };
    let Some(worst) = critical.first() else {
        let is_of_area = |check: &&Check| check.area == area || area == Area::Accelerators;
        if let Some(off) = summary.checks.iter().filter(is_of_area).find(|check| check.name == HEALTH_OFF) {
            return (ConditionStatus::Unknown, HEALTH_OFF.to_owned(), shown(&off.message));
        }
        return (ConditionStatus::True, HEALTHY.to_owned(), format!("No critical problem.{blind}"));
    };
    let messages: Vec<String> = critical.iter().take(MAX_MESSAGES).map(message_of).collect();
    let messages = vcn::excerpt(&messages.join(" "), MESSAGE_MAX - blind.len()).into_owned();
    (ConditionStatus::False, reason(&worst.name), shown(&format!("{messages}{blind}")))
}

/// Words of an agent, within the bounds of the policy oke-node-controller-writes.
fn shown(text: &str) -> String {
    vcn::excerpt(&vcn::printable(text), MESSAGE_MAX).into_owned()
}

fn message_of(check: &Check) -> String {
    let message = match check.subject.as_deref().filter(|_| !check.devices.is_empty()) {
        Some(device) => format!("{device}{}: {}", since(check.since_unix_millis), check.message.trim()),
        None => check.message.trim().to_owned(),
    };
    let Some(gap) = &check.not_measured else { return message };
    format!("{message} Not measured{}: {}.", since(gap.since_unix_millis), gap.reason.trim_end_matches('.'))
}

fn since(unix_millis: u64) -> String {
    let time = i64::try_from(unix_millis / 1000).ok().and_then(|second| Timestamp::from_second(second).ok());
    time.map(|time| format!(" since {time}")).unwrap_or_default()
}

/// A check's name as Kubernetes writes reasons: `conntrack_use` is `ConntrackUse`. An agent may send any name.
fn reason(name: &str) -> String {
    let reason: String = name.split(['_', '-']).flat_map(capitalized).take(REASON_MAX).collect();
    if reason.is_empty() { "Unnamed".to_owned() } else { reason }
}

fn capitalized(word: &str) -> impl Iterator<Item = char> {
    let mut letters = word.chars().filter(char::is_ascii_alphanumeric);
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters)
}
