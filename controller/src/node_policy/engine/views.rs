//! What `kubectl oke-node policy` shows: which node has which revision, and why not another one.

use tunables::view::{NodeProgress, PoliciesView, PolicyNodeView, PolicyView};

use super::Engine;
use crate::node_policy::facts::DueRevision;
use crate::node_policy::files::unknown_files;
use crate::node_policy::render::PlannedPolicy;
use crate::report::metrics::PolicyCensus;

impl Engine {
    /// All policies, without their nodes.
    pub(crate) fn all(&self) -> PoliciesView {
        let plans = self.plans.iter().filter(|planned| !planned.policy.is_orphan);
        let mut policies: Vec<PolicyView> = plans.map(|planned| self.shown(planned)).collect();
        policies.sort_by(|a, b| a.name.cmp(&b.name));
        PoliciesView { stopped: self.stopped.clone(), policies }
    }

    /// One policy with its nodes.
    pub(crate) fn one(&self, name: &str) -> Option<PolicyView> {
        let planned = self.plans.iter().find(|planned| planned.policy.name == name && !planned.policy.is_orphan)?;
        let nodes = planned.plan.due.iter().map(|(node, due)| self.node(planned, node, *due)).collect();
        Some(PolicyView { nodes, ..self.shown(planned) })
    }

    /// All policies in numbers, for metrics.
    pub(crate) fn census(&self) -> Vec<PolicyCensus> {
        let plans = self.plans.iter().filter(|planned| !planned.policy.is_orphan);
        let of = |planned: &PlannedPolicy| {
            let written = self.acknowledged.get(&planned.policy.uid).or(planned.policy.object.status.as_ref());
            PolicyCensus {
                policy: planned.policy.name.clone(),
                progress: api::Reason::as_str(planned.plan.progress),
                counts: written.and_then(|status| status.nodes).unwrap_or_default(),
            }
        };
        plans.map(of).collect()
    }

    fn shown(&self, planned: &PlannedPolicy) -> PolicyView {
        let PlannedPolicy { policy, plan, stable, .. } = planned;
        let written = self.acknowledged.get(&policy.uid).or(policy.object.status.as_ref());
        let reason = |kind| {
            let condition = written.and_then(|status| api::condition::find(&status.conditions, kind));
            condition.map(|condition| (condition.reason.clone(), condition.message.clone())).unwrap_or_default()
        };
        let (progress, message) = reason(api::ConditionType::Progressing);
        let (applied, _) = reason(api::ConditionType::Applied);
        PolicyView {
            name: policy.name.clone(),
            target: policy.target.clone(),
            stable: stable.as_ref().map(|stable| stable.revision.clone()).unwrap_or_default(),
            progress: if progress.is_empty() { api::Reason::as_str(plan.progress).to_owned() } else { progress },
            message,
            applied,
            nodes: Vec::new(),
        }
    }

    fn node(&self, planned: &PlannedPolicy, node: &str, due: DueRevision) -> PolicyNodeView {
        let PlannedPolicy { policy, plan, stable, .. } = planned;
        let memory = self.nodes.get(node);
        let answer = self.answer(node);
        let held = answer.and_then(|answer| answer.policy(&policy.uid));
        let revision = held.map_or("", |held| &held.revision);
        let failure = plan.failed.iter().find(|failure| failure.node == node);
        let stable = stable.as_ref().map_or("", |stable| &stable.revision);
        let progress = if failure.is_some() {
            NodeProgress::Failed
        } else if plan.unsupported.contains(node) {
            NodeProgress::Unsupported
        } else if !revision.is_empty() && due == DueRevision::Absent {
            NodeProgress::Undoing
        } else if plan.unavailable.contains(node) || answer.is_none() {
            NodeProgress::Unavailable
        } else if memory.is_some_and(|memory| memory.clocks.sent(&policy.uid).is_some()) {
            NodeProgress::Sent
        } else if plan.in_flight.contains(node) {
            NodeProgress::Soaking
        } else if revision == policy.target {
            NodeProgress::Done
        } else {
            NodeProgress::Queued
        };
        let items = answer.into_iter().flat_map(|answer| answer.items_of(&policy.name)).cloned();
        let unknown = planned.without_files.contains(node).then(|| unknown_files(&policy.name));
        let failed = failure.map(|failure| format!("{} {}", api::Reason::as_str(failure.reason), failure.item));
        let error = memory.and_then(|memory| memory.error.clone());
        PolicyNodeView {
            node: node.to_owned(),
            is_selected: memory.is_some_and(|memory| memory.selection.has(policy)),
            is_canary: plan.canaries.iter().any(|canary| canary == node),
            revision: revision.to_owned(),
            due: match due {
                DueRevision::Target => policy.target.clone(),
                DueRevision::Stable => stable.to_owned(),
                DueRevision::Absent | DueRevision::Keep => String::new(),
                DueRevision::Unknown => revision.to_owned(),
            },
            progress: progress.as_str().to_owned(),
            message: failed.or(error).unwrap_or_default().trim_end().to_owned(),
            items: items.chain(unknown).collect(),
        }
    }
}
