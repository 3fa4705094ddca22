//! One policy of a step: the facts of its nodes, its plan and its status.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use api::node_policy::PolicyMode;
use api::{NodePolicyStatus, POLICY_FINALIZER, PolicyReason};
use tokio::time::Instant;
use tunables::{ItemReport, ItemState, NodeAnswer, PolicyState};

use super::{Actions, Engine, FinalizerUpdate, PATIENCE, PolicyStep, RootDisk, StatusUpdate, World};
use crate::node_policy::facts::{AgentState, DueRevision, FleetFacts, HeldRevision, NodeFacts, NodeFault, PolicyFacts};
use crate::node_policy::files::leaves_files;
use crate::node_policy::node_input::NodeInput;
use crate::node_policy::render::PlannedPolicy;
use crate::node_policy::rollout;
use crate::node_policy::select::CompiledPolicy;
use crate::node_policy::status;

/// Whether an item cannot be set here, and could be later: the rollout says nothing about it.
const fn is_impossible(item: &ItemReport) -> bool {
    matches!(item.state, ItemState::NotGranted | ItemState::Refused)
}

impl Engine {
    /// Remembers which policies select which nodes, as long as neither changes.
    pub(super) fn select(&mut self, policies: &mut [CompiledPolicy], world: &World<'_>) {
        let mut hasher = DefaultHasher::new();
        for policy in policies.iter() {
            (&policy.uid, policy.object.metadata.generation).hash(&mut hasher);
        }
        let policies_key = hasher.finish();
        for node in world.nodes {
            let memory = self.nodes.entry(node.name().to_owned()).or_default();
            memory.selection.update(node.view, policies, policies_key);
        }
    }

    pub(super) fn plan(
        &mut self,
        policy: CompiledPolicy,
        step: PolicyStep<'_>,
        actions: &mut Actions,
    ) -> PlannedPolicy {
        let PolicyStep { world, is_cut_off, .. } = step;
        let object = policy.object.clone();
        let stored = || object.status.clone().unwrap_or_default();
        let written = self.acknowledged.get(&policy.uid).cloned().unwrap_or_else(stored);
        let facts: Vec<NodeFacts<'_>> = world.nodes.iter().filter_map(|node| self.facts(&policy, node, step)).collect();
        let is_pending = |node: &NodeFacts<'_>| node.agent == AgentState::Pending;
        let is_known = self.known.contains(&policy.uid) || !facts.iter().any(is_pending);
        let is_leaving = object.metadata.deletion_timestamp.is_some();
        let has_finalizer = object.metadata.finalizers.iter().flatten().any(|it| it == POLICY_FINALIZER);
        let is_outdated = self.outdated.get(&policy.uid) == Some(&object.metadata.resource_version);
        let may_change = is_known && !is_outdated && (has_finalizer || is_leaving) && policy.problem().is_none();
        let replaceable = self.unsent.get(&policy.uid).cloned().unwrap_or_default();
        let plan = rollout::plan(
            PolicyFacts {
                target: &policy.target,
                is_report: object.spec.mode == PolicyMode::Report,
                rules: object.spec.rollout.unwrap_or_default(),
                written: &written,
                is_paused: object.spec.paused,
                is_leaving,
                on_delete: object.spec.on_delete,
                replaceable: &replaceable,
            },
            &facts,
            FleetFacts { is_stopped: world.stopped.is_some(), is_cut_off, is_known: may_change },
        );
        let conflict = self.conflicts.get(&policy.name);
        let report = status::Report::of(&policy, &plan, &facts, conflict, |node| self.answer(node));
        let soak = object.spec.rollout.unwrap_or_default().soak();
        let is_over = |node: &&NodeFacts<'_>| {
            let is_gone = node.held.is_none() && node.sent.is_none();
            is_gone && node.applied_for.is_some_and(|time| time >= soak)
        };
        let without_files = facts.iter().filter(|node| node.lacks_files).map(|node| node.name.to_owned()).collect();
        let over: Vec<String> = facts.iter().filter(is_over).map(|node| node.name.to_owned()).collect();
        for node in over {
            self.nodes.entry(node).or_default().clocks.forget(&policy.uid);
        }
        if is_known {
            self.known.insert(policy.uid.clone());
        }
        for node in &plan.soaked {
            self.nodes.entry(node.clone()).or_default().clocks.note_soaked(&policy.uid);
        }
        let planned = PlannedPolicy { policy, plan, stable: written.stable.clone(), without_files };
        if !planned.policy.is_orphan {
            let is_removed = is_leaving && planned.plan.is_gone;
            if has_finalizer == is_leaving && (is_removed || !is_leaving) {
                actions.finalizers.push(FinalizerUpdate { object: object.clone(), is_removed });
            }
            actions.statuses.extend(status_update(&planned, &written, &report, world.stopped));
        }
        planned
    }

    /// The facts of a node that a policy selects, or that has a revision of it.
    fn facts<'a>(
        &'a self,
        policy: &CompiledPolicy,
        node: &'a NodeInput<'a>,
        step: PolicyStep<'_>,
    ) -> Option<NodeFacts<'a>> {
        let memory = self.nodes.get(node.name())?;
        if node.view.leaving {
            return None;
        }
        let is_selected = memory.selection.has(policy);
        let known = memory.answer.as_ref();
        let answer = known.map(|known| &known.answer);
        let held = answer.and_then(|answer| answer.policy(&policy.uid));
        let sent = memory.clocks.sent(&policy.uid);
        // A policy whose files are still there is not gone yet.
        let is_left = held.is_none() && answer.is_some_and(|answer| leaves_files(answer, &policy.uid));
        let disk = memory.root_disks.get(&policy.uid);
        let is_growing = disk.is_some_and(RootDisk::is_unfinished);
        let applied_for = match is_left {
            true => Some(Duration::ZERO),
            false => {
                let applied = memory.clocks.applied_for(&policy.uid, node.answered).filter(|_| !is_growing);
                let grown = disk.and_then(|disk| disk.grown_for(step.world.now));
                applied.map(|applied| grown.map_or(applied, |grown| grown.min(applied)))
            }
        };
        let state = |state| if is_growing && state == PolicyState::Applied { PolicyState::Applying } else { state };
        if !is_selected && held.is_none() && sent.is_none() && applied_for.is_none() {
            return None;
        }
        let baseline = memory.clocks.sent_baseline().or_else(|| answer.map(|answer| &answer.baseline));
        let agent = match node.state(known.is_some()) {
            // It answers, but not about its policies.
            AgentState::Pending if memory.failures >= PATIENCE => AgentState::Silent,
            state => state,
        };
        let has_files =
            policy.object.spec.settings.has_files() && held.is_some_and(|held| held.revision == policy.target);
        let lacks_files = has_files && agent == AgentState::Answered && !node.takes_files();
        Some(NodeFacts {
            name: node.name(),
            is_selected,
            agent,
            is_answer_known: known.is_some(),
            held: held.map(|held| HeldRevision { revision: &held.revision, mode: held.mode, state: state(held.state) }),
            sent,
            applied_for,
            is_soaked: memory.clocks.is_soaked(&policy.uid),
            is_new: memory.clocks.is_new(&policy.uid),
            is_incomplete: answer.is_some_and(|answer| answer.items_of(&policy.name).any(is_impossible)) || lacks_files,
            lacks_files,
            is_ready: node.is_ready(),
            fault: baseline
                .and_then(|baseline| node.fault(held, answer, baseline))
                .filter(|fault| !self.is_excused(node.name(), fault, step.world.now))
                .or_else(|| self.file_fault(node, policy, answer))
                .or_else(|| disk.and_then(RootDisk::fault)),
            is_busy: step.busy.contains(node.name()),
        })
    }

    /// Whether a change of files explains a fault: its Pod undoes the change, or the fault is judged afterwards.
    fn is_excused(&self, node: &str, fault: &NodeFault, now: Instant) -> bool {
        let is_of_change = matches!(fault.reason, PolicyReason::NodeNotReady | PolicyReason::NewProblem);
        is_of_change && self.files.is_changing(node, now)
    }

    /// The fault of a node on which no Pod can apply the files of a policy.
    fn file_fault(
        &self,
        node: &NodeInput<'_>,
        policy: &CompiledPolicy,
        answer: Option<&NodeAnswer>,
    ) -> Option<NodeFault> {
        let answer = answer?;
        let held = answer.policy(&policy.uid)?;
        let is_affected = self.has_failed_pods(node.name(), answer) && self.needs_files(&policy.uid, &held.revision);
        is_affected.then(|| NodeFault { reason: PolicyReason::Failed, item: "files".to_owned() })
    }

    /// Nodes that the plan is about to change.
    pub(super) fn changing<'a>(&'a self, planned: &'a PlannedPolicy) -> impl Iterator<Item = &'a str> {
        let policy = &planned.policy;
        let stable = planned.stable.as_ref().map_or("", |stable| &stable.revision);
        let applies = policy.object.spec.mode == PolicyMode::Apply;
        planned.plan.due.iter().filter_map(move |(node, due)| {
            let held =
                self.answer(node).and_then(|answer| answer.policy(&policy.uid)).map_or("", |held| &held.revision);
            let is_changing = match due {
                DueRevision::Target => applies && held != policy.target,
                DueRevision::Stable => held != stable,
                DueRevision::Absent => !held.is_empty(),
                DueRevision::Keep | DueRevision::Unknown => false,
            };
            is_changing.then_some(node.as_str())
        })
    }
}

/// The status of a policy, if it is another one.
fn status_update(
    planned: &PlannedPolicy,
    written: &NodePolicyStatus,
    report: &status::Report,
    stopped: Option<&str>,
) -> Option<StatusUpdate> {
    let status = status::status(planned, written, report, stopped);
    let is_urgent = status::is_urgent(written, &status);
    (status != *written).then(|| StatusUpdate { object: planned.policy.object.clone(), status, is_urgent })
}
