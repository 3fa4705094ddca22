//! Where a node is in the rollout.

use std::time::Duration;

use api::node_policy::FailureAction;

use super::Rollout;
use crate::node_policy::facts::NodeFacts;

impl<'a> Rollout<'a> {
    pub(super) fn selected(&self) -> impl Iterator<Item = &'a NodeFacts<'a>> {
        let is_leaving = self.policy.is_leaving;
        self.nodes.iter().filter(move |node| node.is_selected && !is_leaving)
    }

    /// Whether nodes keep a rejected revision.
    pub(super) fn keeps(&self) -> bool {
        self.policy.rules.on_failure == FailureAction::Hold
    }

    /// Whether the target worked on all nodes already.
    pub(super) fn is_proven(&self) -> bool {
        self.policy.target == self.stable
    }

    /// Whether the target worked, and few nodes join it: they need no canary.
    pub(super) fn is_trusted(&self) -> bool {
        self.is_proven() && !self.is_wave
    }

    /// Whether nodes beyond the canaries have the target: the canaries were watched.
    pub(super) fn has_passed_canary(&self) -> bool {
        self.selected().any(|node| {
            let has_target = node.revision() == self.policy.target && (node.is_new || !self.is_proven());
            has_target && !self.written_canaries.contains(node.name)
        })
    }

    /// Whether the target changes nothing on the node.
    pub(super) fn is_inert(&self, node: &NodeFacts<'_>) -> bool {
        self.policy.is_report && !node.is_applying()
    }

    pub(super) fn is_candidate(&self, node: &NodeFacts<'_>) -> bool {
        let is_free = node.is_reachable() && node.is_ready && !node.is_busy && node.sent.is_none();
        is_free && node.revision() != self.policy.target && !self.is_inert(node)
    }

    /// Whether the node has a revision that is neither the target nor the stable one.
    pub(super) fn is_abandoned(&self, node: &NodeFacts<'_>) -> bool {
        let revision = node.revision();
        !revision.is_empty() && revision != self.policy.target && revision != self.stable
    }

    /// Whether the policy must go from the node.
    pub(super) fn is_leaving(&self, node: &NodeFacts<'_>) -> bool {
        (self.policy.is_leaving || !node.is_selected) && (node.held.is_some() || !node.revision().is_empty())
    }

    /// Whether the policy went from the node, which is watched.
    pub(super) fn is_undone(&self, node: &NodeFacts<'_>) -> bool {
        let is_watched = node.applied_for.is_some_and(|time| time < self.policy.rules.soak());
        node.revision().is_empty() && is_watched && node.is_reachable()
    }

    pub(super) fn soak_of(&self, node: &NodeFacts<'_>) -> Duration {
        match self.written_canaries.contains(node.name) {
            true => self.policy.rules.canary_soak(),
            false => self.policy.rules.soak(),
        }
    }

    pub(super) fn is_soaked(&self, node: &NodeFacts<'_>) -> bool {
        let is_canary = self.written_canaries.contains(node.name);
        // Where the target worked, nodes that a former leader sent it are not watched again.
        let is_old = self.is_proven() && !node.is_new && !is_canary;
        let is_watched = is_old || node.applied_for.is_some_and(|time| time >= self.soak_of(node));
        // A canary shows nothing about items that it cannot set.
        let is_whole = !(is_canary && node.is_incomplete) && node.fault.is_none();
        node.has(self.policy.target) && (node.is_soaked || is_watched && is_whole)
    }

    /// Whether the node changes, or changed and is still watched.
    pub(super) fn is_in_flight(&self, node: &NodeFacts<'_>) -> bool {
        // After a failure that holds, nodes keep the target unwatched.
        let is_held = self.is_current && self.policy.written.rejected == self.policy.target && self.keeps();
        let is_target = node.revision() == self.policy.target && !self.is_inert(node);
        let is_watched = is_target && !self.is_soaked(node) && !is_held;
        let is_sent = node.sent.is_some() && node.is_applying();
        is_sent || is_watched || self.is_undone(node)
    }
}
