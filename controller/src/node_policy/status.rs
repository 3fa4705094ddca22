//! The status of a policy, from its plan and from what the agents answered. Pure, but for the time of a new transition.

use api::condition::{ConditionType, set};
use api::node_policy::{FAILING_MAX, FailingNode, PolicyCounts, StableRevision};
use api::{Condition, NodePolicyStatus, PolicyReason, Reason as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use tunables::merge::{Conflict, refusals};
use tunables::{ItemState, Key, NodeAnswer, Scope};

use super::facts::{AgentState, NodeFacts};
use super::files::unknown_files;
use super::render::PlannedPolicy;
use super::rollout::{FAILURES, RolloutPlan};
use super::select::CompiledPolicy;
use crate::cluster::creator::created_by;

/// The most names in a message.
const NAMES_MAX: usize = 3;

/// What the nodes of a policy report.
#[derive(Debug)]
pub(crate) struct Report {
    counts: PolicyCounts,
    failing: Vec<FailingNode>,
    applied: PolicyReason,
    message: String,
}

/// An item that a node does not have, the worst of all.
struct WorstItem {
    state: ItemState,
    text: String,
}

impl Report {
    /// Of the facts of a policy's nodes and their agents' answers.
    pub(crate) fn of<'a>(
        policy: &CompiledPolicy,
        plan: &RolloutPlan,
        facts: &[NodeFacts<'_>],
        conflict: Option<&(u32, Conflict)>,
        answer: impl Fn(&str) -> Option<&'a NodeAnswer>,
    ) -> Self {
        let stable = policy.object.status.as_ref().and_then(|status| status.stable.as_ref());
        let mut counts = PolicyCounts { failed: number(plan.failed.len()), ..PolicyCounts::default() };
        counts.conflicted = conflict.map_or(0, |(nodes, _)| *nodes);
        let mut failing: Vec<FailingNode> =
            plan.failed.iter().map(|it| FailingNode::new(&it.node, &it.item, it.reason.as_str())).collect();
        let mut worst: Option<WorstItem> = None;
        for node in facts {
            count(&mut counts, node, &policy.target, stable.map_or("", |stable| &stable.revision));
            let items = answer(node.name).into_iter().flat_map(|answer| answer.items_of(&policy.name));
            let (mut differs, mut first) = (false, None);
            let unknown = node.lacks_files.then(|| unknown_files(&policy.name));
            for item in items.chain(unknown.as_ref()) {
                differs = true;
                counts.drifted_items += u32::from(item.state == ItemState::Drifted);
                first = first.or_else(|| Some((item.item.clone(), item.state)));
                if worst.as_ref().is_none_or(|worst| item.state < worst.state) {
                    let text = format!("{}: {} {}", node.name, item.item, item.message);
                    worst = Some(WorstItem { state: item.state, text: text.trim_end().to_owned() });
                }
            }
            counts.drifted += u32::from(differs);
            if let Some((item, state)) = first.filter(|_| !plan.has_failed(node.name)) {
                failing.push(FailingNode::new(node.name, &item, state.as_str()));
            }
        }
        // Failures first, which a later leader needs; then by name.
        let failures = plan.failed.len();
        if let Some(others) = failing.get_mut(failures..) {
            others.sort_by(|a, b| a.node.cmp(&b.node));
        }
        failing.truncate(FAILING_MAX);
        let (applied, message) = applied(policy, plan, counts, conflict, worst);
        Self { counts, failing, applied, message }
    }
}

/// The status that the policy must have.
pub(crate) fn status(
    planned: &PlannedPolicy,
    written: &NodePolicyStatus,
    report: &Report,
    stopped: Option<&str>,
) -> NodePolicyStatus {
    let PlannedPolicy { policy, plan, .. } = planned;
    let spec = &policy.object.spec;
    let stable = StableRevision {
        revision: policy.target.clone(),
        mode: spec.mode,
        priority: spec.priority(),
        settings: spec.settings.clone(),
    };
    let mut status = NodePolicyStatus {
        observed_generation: policy.object.metadata.generation,
        conditions: written.conditions.clone(),
        created_by: created_by(&policy.object.metadata),
        target: policy.target.clone(),
        rejected: plan.rejected.clone(),
        canaries: if plan.is_complete { Vec::new() } else { plan.canaries.clone() },
        stable: if plan.is_complete { Some(stable) } else { written.stable.clone() },
        nodes: Some(report.counts),
        failing: report.failing.clone(),
    };
    let (reason, message) = progress(policy, plan, stopped);
    let now = Time(Timestamp::now());
    set(&mut status.conditions, Condition::new(ConditionType::Progressing, reason, &message, now.clone()));
    set(&mut status.conditions, Condition::new(ConditionType::Applied, report.applied, &report.message, now));
    status.bounded(spec, plan.failed.len())
}

/// Whether a status differs in more than counts and words: such a one is written at once.
pub(crate) fn is_urgent(written: &NodePolicyStatus, status: &NodePolicyStatus) -> bool {
    let reasons = |status: &NodePolicyStatus| {
        let of = |it: &Condition| (it.kind.clone(), it.status.clone(), it.reason.clone());
        status.conditions.iter().map(of).collect::<Vec<_>>()
    };
    let failures = |status: &NodePolicyStatus| {
        let is_failure = |it: &&FailingNode| FAILURES.iter().any(|reason| reason.as_str() == it.reason);
        status.failing.iter().filter(is_failure).cloned().collect::<Vec<_>>()
    };
    let stable = |status: &NodePolicyStatus| status.stable.as_ref().map(|stable| stable.revision.clone());
    (&written.target, &written.rejected, &written.canaries, written.observed_generation)
        != (&status.target, &status.rejected, &status.canaries, status.observed_generation)
        || stable(written) != stable(status)
        || failures(written) != failures(status)
        || reasons(written) != reasons(status)
}

fn count(counts: &mut PolicyCounts, node: &NodeFacts<'_>, target: &str, stable: &str) {
    let held = node.held.map_or("", |held| held.revision);
    if node.is_selected {
        counts.matched += 1;
        counts.target += u32::from(held == target);
        counts.stable += u32::from(!stable.is_empty() && held == stable);
        counts.unsupported += u32::from(node.agent == AgentState::Unsupported);
        counts.unavailable += u32::from(node.is_unavailable());
    }
}

/// The condition Applied, the most urgent reason first.
fn applied(
    policy: &CompiledPolicy,
    plan: &RolloutPlan,
    counts: PolicyCounts,
    conflict: Option<&(u32, Conflict)>,
    worst: Option<WorstItem>,
) -> (PolicyReason, String) {
    if let Some(failure) = plan.failed.first() {
        return (failure.reason, format!("{} {}", failure.node, failure.item).trim_end().to_owned());
    }
    let spec = &policy.object.spec;
    if let Some((key, refusal)) = refusals(&spec.settings, spec.mode.into()).first() {
        return (PolicyReason::Refused, format!("{key}: {refusal}"));
    }
    if let Some((_, Conflict { rival, item, .. })) = conflict {
        return (PolicyReason::Conflict, format!("{item} is set by {rival}"));
    }
    if let Some(WorstItem { state, text }) = worst {
        return (state.reason().unwrap_or(PolicyReason::Drifted), text);
    }
    if counts.matched == 0 {
        return (PolicyReason::NoNodes, String::new());
    }
    if counts.unsupported == counts.matched {
        return (PolicyReason::Unsupported, "the agents of all nodes are too old for NodePolicies".to_owned());
    }
    if counts.target + counts.unsupported + counts.unavailable < counts.matched || counts.target == 0 {
        return (PolicyReason::Pending, String::new());
    }
    let of_host = policy.object.spec.settings.sysctls.keys();
    let of_host: Vec<&str> = of_host
        .filter(|key| Key::named(key).is_some_and(|key| key.scope == Scope::HostNetwork))
        .map(String::as_str)
        .collect();
    let message = match of_host.is_empty() {
        true => String::new(),
        false => format!("in the host's network only, not in pods: {}", of_host.join(", ")),
    };
    (PolicyReason::Applied, message)
}

fn progress(policy: &CompiledPolicy, plan: &RolloutPlan, stopped: Option<&str>) -> (PolicyReason, String) {
    if let Some((reason, message)) = policy.problem() {
        return (reason, message.to_owned());
    }
    let message = match plan.progress {
        PolicyReason::Stopped => stopped.unwrap_or_default().to_owned(),
        PolicyReason::RollingBack | PolicyReason::Rejected => {
            let failed: Vec<String> = plan.failed.iter().map(|failure| failure.node.clone()).collect();
            format!("failed: {}", listed(&failed))
        }
        _ => listed(&plan.about),
    };
    (plan.progress, message)
}

fn listed(names: &[String]) -> String {
    let shown: Vec<&str> = names.iter().take(NAMES_MAX).map(String::as_str).collect();
    match names.len().saturating_sub(NAMES_MAX) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
