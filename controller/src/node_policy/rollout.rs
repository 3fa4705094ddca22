//! The rollout of one policy: which node gets which revision now. Pure, and without counters: everything is derived from what
//! the nodes answered and what the status says. Golden cases: controller/golden/rollout.
//!
//! ```text
//!   known? ─▶ failures ─▶ rejected? ─▶ roll back, a few at a time, at least one
//!                            └─▶ canaries (written to the status first) ─▶ window of maxUnavailable ─▶ stable
//!   no longer selected ─▶ undone in the same window; kept at once
//! ```

mod failures;
mod node_states;
#[cfg(test)]
mod tests;
mod window;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use api::PolicyReason;
use api::node_policy::PolicyRemoval;
use tunables::revision::place;

use super::facts::{AgentState, DueRevision, FleetFacts, NodeFacts, PolicyFacts};
use failures::failures;
pub(crate) use failures::{FAILURES, NodeFailure};
use window::Window;

/// What to do for a policy, and what its status says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RolloutPlan {
    /// What each node must have now.
    pub due: BTreeMap<String, DueRevision>,
    /// The reason of the condition Progressing, with the nodes that it is about.
    pub progress: PolicyReason,
    pub about: Vec<String>,
    /// For the status: nothing that depends on these is sent before the API server has them.
    pub rejected: String,
    pub canaries: Vec<String>,
    pub failed: Vec<NodeFailure>,
    /// Whether all nodes that can have the target have it, so that it becomes the stable revision.
    pub is_complete: bool,
    /// Nodes that were watched long enough with the target.
    pub soaked: BTreeSet<String>,
    /// Nodes that change: other policies leave them alone.
    pub in_flight: BTreeSet<String>,
    /// Whether no node has anything of a policy that is being deleted.
    pub is_gone: bool,
    /// Nodes that are NotReady or do not answer, and those whose agent takes no policies.
    pub unavailable: BTreeSet<String>,
    pub unsupported: BTreeSet<String>,
}

/// The facts, and what follows from them.
struct Rollout<'a> {
    policy: PolicyFacts<'a>,
    nodes: &'a [NodeFacts<'a>],
    fleet: FleetFacts,
    /// Whether the status is about this target.
    is_current: bool,
    /// The revision that worked last; empty without any.
    stable: &'a str,
    /// Names of canaries that the status has.
    written_canaries: BTreeSet<&'a str>,
    /// Whether more nodes join a revision that worked than may change at the same time: they begin with a canary, too.
    is_wave: bool,
}

/// Decides for one policy. `nodes` are those that it selects, and those that have a revision of it.
pub(crate) fn plan(policy: PolicyFacts<'_>, nodes: &[NodeFacts<'_>], fleet: FleetFacts) -> RolloutPlan {
    Rollout::new(policy, nodes, fleet).plan()
}

impl<'a> Rollout<'a> {
    fn new(policy: PolicyFacts<'a>, nodes: &'a [NodeFacts<'a>], fleet: FleetFacts) -> Self {
        let is_current = policy.written.target == policy.target;
        let written_canaries = match is_current {
            true => policy.written.canaries.iter().map(String::as_str).collect(),
            false => BTreeSet::new(),
        };
        let stable = policy.written.stable.as_ref().map_or("", |stable| &stable.revision);
        let rollout = Self { policy, nodes, fleet, is_current, stable, written_canaries, is_wave: false };
        let joining =
            rollout.selected().filter(|node| node.revision().is_empty() && rollout.is_candidate(node)).count();
        let is_large = joining > policy.rules.max_unavailable(nodes.len());
        let is_wave = rollout.is_proven() && (is_large || !rollout.written_canaries.is_empty());
        Self { is_wave, ..rollout }
    }

    fn plan(self) -> RolloutPlan {
        let failed = failures(&self);
        let was_rejected = self.is_current && self.policy.written.rejected == self.policy.target;
        let is_rejected = was_rejected || self.is_too_many(&failed);
        let mut plan = self.hold(failed, is_rejected);
        // What is rejected is taken back even while many agents are silent.
        let is_cut_off = self.fleet.is_cut_off && !was_rejected;
        if self.fleet.is_stopped || is_cut_off || !self.fleet.is_known {
            let reason = if self.fleet.is_stopped { PolicyReason::Stopped } else { PolicyReason::Waiting };
            plan.progress = reason;
            return plan;
        }
        let mut window = Window::of(&self, &plan);
        if is_rejected && !was_rejected {
            // First the status, so that no later leader tries it again.
            plan.progress = PolicyReason::RollingBack;
            return plan;
        }
        if is_rejected {
            self.roll_back(&mut plan, &mut window);
        } else if !self.policy.is_paused {
            self.roll_out(&mut plan, &mut window);
        }
        if !self.policy.is_paused || self.policy.is_leaving {
            self.undo(&mut plan, &mut window);
        }
        self.conclude(&mut plan, is_rejected);
        plan
    }

    /// Every node keeps what it has.
    fn hold(&self, failed: Vec<NodeFailure>, is_rejected: bool) -> RolloutPlan {
        let held = |node: &NodeFacts<'_>| match node.revision() {
            "" => DueRevision::Absent,
            revision if revision == self.policy.target => DueRevision::Target,
            revision if revision == self.stable => DueRevision::Stable,
            _ => DueRevision::Unknown,
        };
        RolloutPlan {
            due: self.nodes.iter().map(|node| (node.name.to_owned(), held(node))).collect(),
            progress: PolicyReason::Done,
            about: Vec::new(),
            rejected: if is_rejected { self.policy.target.to_owned() } else { String::new() },
            canaries: self.written_canaries.iter().map(|name| (*name).to_owned()).collect(),
            failed,
            is_complete: false,
            soaked: self.named(|node| self.is_soaked(node)),
            in_flight: self.named(|node| self.is_in_flight(node)),
            is_gone: false,
            unavailable: self.named(|node| node.is_unavailable()),
            unsupported: self.named(|node| node.agent == AgentState::Unsupported),
        }
    }

    fn named(&self, is_one: impl Fn(&NodeFacts<'_>) -> bool) -> BTreeSet<String> {
        self.nodes.iter().filter(|node| is_one(node)).map(|node| node.name.to_owned()).collect()
    }

    /// Nodes that have the rejected revision, or an abandoned one, get the stable one: those that failed first, and at least one
    /// at a time.
    fn roll_back(&self, plan: &mut RolloutPlan, window: &mut Window) {
        // Where the revision worked before, only nodes that joined lose it.
        let is_affected = |node: &NodeFacts<'_>| {
            let is_joining = node.is_new && !self.is_soaked(node) || self.written_canaries.contains(node.name);
            !self.is_proven() || is_joining || plan.has_failed(node.name)
        };
        let has_target =
            |node: &&NodeFacts<'_>| !self.keeps() && node.revision() == self.policy.target && is_affected(node);
        let mut back: Vec<&NodeFacts<'_>> =
            self.selected().filter(|node| has_target(node) || self.is_abandoned(node)).collect();
        back.sort_by_key(|node| (!plan.has_failed(node.name), place(self.policy.target, node.name)));
        plan.progress = if back.is_empty() { PolicyReason::Rejected } else { PolicyReason::RollingBack };
        plan.about = names(&back);
        self.revert(&back, plan, window);
        self.join(plan, window);
    }

    fn revert(&self, back: &[&NodeFacts<'_>], plan: &mut RolloutPlan, window: &mut Window) {
        let has_stable = !self.stable.is_empty() && !self.is_proven();
        let due = if has_stable { DueRevision::Stable } else { DueRevision::Absent };
        for node in back.iter().filter(|node| node.is_reachable()) {
            // It changes already, or is broken: no further node becomes unavailable.
            let is_counted = window.counts(node.name);
            if is_counted || window.take_at_least_one(node.name) {
                plan.set(node.name, due);
            }
        }
    }

    fn roll_out(&self, plan: &mut RolloutPlan, window: &mut Window) {
        // Reports change nothing: no canary, no window.
        for node in self.selected().filter(|node| self.is_inert(node) && node.is_reachable()) {
            plan.set(node.name, DueRevision::Target);
        }
        let mut candidates: Vec<&NodeFacts<'_>> = self.selected().filter(|node| self.is_candidate(node)).collect();
        candidates.sort_by_cached_key(|node| (Reverse(self.is_abandoned(node)), place(self.policy.target, node.name)));
        if self.is_trusted() {
            // Nodes that joined and fail keep others from joining.
            if plan.failed.len() <= self.policy.rules.max_failures() {
                self.send(&candidates, DueRevision::Target, plan, window);
            }
            return;
        }
        self.choose_canaries(&candidates, plan);
        let is_canary = |node: &&&NodeFacts<'_>| self.written_canaries.contains(node.name);
        let canaries: Vec<&NodeFacts<'_>> = candidates.iter().filter(is_canary).copied().collect();
        self.send(&canaries, DueRevision::Target, plan, window);
        let is_done = plan.canaries.iter().all(|name| plan.soaked.contains(name));
        if is_done {
            self.send(&candidates, DueRevision::Target, plan, window);
        } else {
            plan.progress = PolicyReason::Canary;
            plan.about.clone_from(&plan.canaries);
            let is_other = |node: &&&NodeFacts<'_>| !plan.canaries.iter().any(|name| name == node.name);
            let abandoned = candidates.iter().filter(|node| self.is_abandoned(node)).filter(is_other);
            let abandoned: Vec<&NodeFacts<'_>> = abandoned.copied().collect();
            self.revert(&abandoned, plan, window);
        }
        self.join(plan, window);
    }

    /// Replaces canaries that certainly do not have the target and cannot get it now. Others that are gone have failed.
    fn choose_canaries(&self, candidates: &[&NodeFacts<'_>], plan: &mut RolloutPlan) {
        let count = self.policy.rules.canaries();
        let can_be = |name: &String| {
            let is_replaceable = self.policy.replaceable.contains(name) || self.has_passed_canary();
            let Some(node) = self.selected().find(|node| node.name == name) else { return !is_replaceable };
            let has_other = node.held.is_some() && node.revision() != self.policy.target;
            let has_none = node.is_reachable() && node.revision() != self.policy.target && !node.is_ready;
            !(has_none && (has_other || is_replaceable))
        };
        plan.canaries.retain(can_be);
        // A node that has the target already proves as much as another canary.
        let proves = |node: &&NodeFacts<'_>| !self.is_proven() && node.has(self.policy.target) && !self.is_inert(node);
        let proving = self.selected().filter(proves);
        for node in proving.chain(candidates.iter().copied()) {
            if plan.canaries.len() >= count {
                break;
            }
            if !plan.canaries.iter().any(|name| name == node.name) {
                plan.canaries.push(node.name.to_owned());
            }
        }
    }

    /// Nodes without any revision get the stable one while the target is not proven.
    fn join(&self, plan: &mut RolloutPlan, window: &mut Window) {
        if self.stable.is_empty() || self.is_proven() {
            return;
        }
        let is_new = |node: &&NodeFacts<'_>| node.revision().is_empty() && self.is_candidate(node);
        let new: Vec<&NodeFacts<'_>> = self
            .selected()
            .filter(|node| is_new(node) && !plan.canaries.iter().any(|name| name == node.name))
            .collect();
        let new: Vec<&NodeFacts<'_>> =
            new.into_iter().filter(|node| plan.due.get(node.name) == Some(&DueRevision::Absent)).collect();
        self.send(&new, DueRevision::Stable, plan, window);
    }

    fn send(&self, nodes: &[&NodeFacts<'_>], due: DueRevision, plan: &mut RolloutPlan, window: &mut Window) {
        for node in nodes {
            if window.counts(node.name) || window.take(node.name) {
                plan.set(node.name, due);
            }
        }
    }

    /// Nodes that the policy no longer selects lose it.
    fn undo(&self, plan: &mut RolloutPlan, window: &mut Window) {
        let mut leaving: Vec<&NodeFacts<'_>> = self.nodes.iter().filter(|node| self.is_leaving(node)).collect();
        leaving.sort_by_cached_key(|node| place(self.policy.target, node.name));
        for node in leaving.iter().filter(|node| node.is_reachable()) {
            let is_kept = node.held.is_some_and(|held| held.mode == tunables::DocumentMode::Keep);
            if is_kept || !node.is_applying() {
                plan.set(node.name, DueRevision::Absent);
            } else if self.policy.on_delete == PolicyRemoval::Keep {
                plan.set(node.name, DueRevision::Keep);
            } else if !node.is_busy && (window.counts(node.name) || window.take(node.name)) {
                plan.set(node.name, DueRevision::Absent);
            }
        }
        let is_left = |node: &NodeFacts<'_>| self.is_leaving(node) && node.is_reachable() || self.is_undone(node);
        plan.is_gone = self.policy.is_leaving && !self.nodes.iter().any(is_left);
        if !leaving.is_empty() && plan.progress == PolicyReason::Done {
            plan.progress = PolicyReason::Undoing;
            plan.about = names(&leaving);
        }
    }

    fn conclude(&self, plan: &mut RolloutPlan, is_rejected: bool) {
        if self.policy.is_leaving {
            plan.progress = PolicyReason::Undoing;
            return;
        }
        let lacks = |node: &&NodeFacts<'_>| !(node.has(self.policy.target) && plan.soaked.contains(node.name));
        let can_have = |node: &&NodeFacts<'_>| node.is_reachable() && node.is_ready && !plan.has_failed(node.name);
        let pending: Vec<&NodeFacts<'_>> = self.selected().filter(lacks).filter(can_have).collect();
        let has_any = self.selected().any(|node| node.has(self.policy.target));
        plan.is_complete = !is_rejected && pending.is_empty() && has_any;
        if is_rejected || plan.progress == PolicyReason::Canary {
            return;
        }
        if self.is_trusted() && plan.failed.len() > self.policy.rules.max_failures() {
            plan.progress = PolicyReason::Unanswered;
            plan.about = plan.failed.iter().map(|failure| failure.node.clone()).collect();
            return;
        }
        let is_moving = !plan.in_flight.is_empty()
            || pending.iter().any(|node| node.revision() != self.policy.target && plan.is_due(node.name));
        if !pending.is_empty() {
            plan.progress = match (self.policy.is_paused, is_moving) {
                (true, _) => PolicyReason::Paused,
                (false, true) => PolicyReason::Rolling,
                (false, false) => PolicyReason::Unanswered,
            };
            let unavailable: Vec<&NodeFacts<'_>> = self.selected().filter(|node| node.is_unavailable()).collect();
            plan.about = if is_moving { Vec::new() } else { names(&unavailable) };
        }
    }

    /// Whether so many failed that the revision is rejected. One that worked before is not.
    fn is_too_many(&self, failed: &[NodeFailure]) -> bool {
        let has_failed_canary = failed.iter().any(|failure| self.written_canaries.contains(failure.node.as_str()));
        !self.is_trusted() && (has_failed_canary || failed.len() > self.policy.rules.max_failures())
    }
}

impl RolloutPlan {
    pub(crate) fn has_failed(&self, node: &str) -> bool {
        self.failed.iter().any(|failure| failure.node == node)
    }

    fn set(&mut self, node: &str, due: DueRevision) {
        if let Some(held) = self.due.get_mut(node) {
            *held = due;
        }
    }

    fn is_due(&self, node: &str) -> bool {
        self.due.get(node) == Some(&DueRevision::Target)
    }
}

fn names(nodes: &[&NodeFacts<'_>]) -> Vec<String> {
    nodes.iter().map(|node| node.name.to_owned()).collect()
}
