//! Which nodes failed with the target: now, and earlier as the status says. A node that is replaced under the same name stays failed.

use std::collections::BTreeMap;

use api::PolicyReason;

use super::Rollout;
use crate::node_policy::facts::{AgentState, NodeFacts};

/// A node that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeFailure {
    pub node: String,
    pub item: String,
    pub reason: PolicyReason,
}

/// The reasons of failures; other reasons of a status are of nodes that lack a setting.
pub(crate) const FAILURES: [PolicyReason; 6] = [
    PolicyReason::RolledBack,
    PolicyReason::Failed,
    PolicyReason::NewProblem,
    PolicyReason::NodeNotReady,
    PolicyReason::AgentSilent,
    PolicyReason::CanaryLost,
];

/// All failures, by node.
pub(super) fn failures(rollout: &Rollout<'_>) -> Vec<NodeFailure> {
    let mut failures = BTreeMap::new();
    let is_kept = rollout.is_current && !rollout.is_trusted();
    for written in rollout.policy.written.failing.iter().filter(|_| is_kept) {
        let reason = FAILURES.into_iter().find(|reason| api::Reason::as_str(*reason) == written.reason);
        if let Some(reason) = reason {
            let failure = NodeFailure { node: written.node.clone(), item: written.item.clone(), reason };
            failures.insert(written.node.clone(), failure);
        }
    }
    if !rollout.fleet.is_cut_off && rollout.fleet.is_known && !rollout.policy.is_leaving {
        for node in rollout.nodes.iter().filter(|node| node.is_selected) {
            if let Some((reason, item)) = fault(rollout, node) {
                let failure = NodeFailure { node: node.name.to_owned(), item, reason };
                failures.entry(node.name.to_owned()).or_insert(failure);
            }
        }
        for name in lost_canaries(rollout) {
            let failure = NodeFailure { node: name.to_owned(), item: String::new(), reason: PolicyReason::CanaryLost };
            failures.entry(name.to_owned()).or_insert(failure);
        }
    }
    failures.into_values().collect()
}

/// Why a node fails now.
fn fault(rollout: &Rollout<'_>, node: &NodeFacts<'_>) -> Option<(PolicyReason, String)> {
    // What a former leader sent it is not known: only a canary of the status may have the target.
    let is_lost_canary = !node.is_answer_known && rollout.written_canaries.contains(node.name) && !rollout.is_trusted();
    let has_target = node.revision() == rollout.policy.target && !rollout.is_inert(node);
    let is_watched = !node.is_soaked && !rollout.is_soaked(node);
    // Canaries are judged as long as others follow.
    let is_canary = rollout.written_canaries.contains(node.name) && !rollout.is_trusted();
    let is_judged = has_target && (is_watched || is_canary);
    if node.agent == AgentState::Silent && (is_judged || is_lost_canary) {
        return Some((PolicyReason::AgentSilent, String::new()));
    }
    let fault = node.fault.as_ref().filter(|_| is_judged)?;
    Some((fault.reason, fault.item.clone()))
}

/// Canaries that are gone, not selected, or blank and NotReady, before they were watched: they may have had the target.
fn lost_canaries<'a>(rollout: &Rollout<'a>) -> Vec<&'a str> {
    if rollout.is_trusted() || rollout.has_passed_canary() {
        return Vec::new();
    }
    let is_lost = |name: &&&str| {
        let is_blank = |node: &NodeFacts<'_>| node.held.is_none() && node.revision().is_empty() && !node.is_ready;
        let node = rollout.selected().find(|node| node.name == **name);
        !rollout.policy.replaceable.contains(**name) && node.is_none_or(|node| node.is_reachable() && is_blank(node))
    };
    rollout.written_canaries.iter().filter(is_lost).copied().collect()
}
