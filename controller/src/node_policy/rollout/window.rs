//! How many nodes may become unavailable: those that change, fail, are NotReady or silent count already.

use std::collections::BTreeSet;

use super::{Rollout, RolloutPlan};

/// What is left of maxUnavailable.
pub(super) struct Window {
    left: usize,
    counted: BTreeSet<String>,
    /// Whether a node was rolled back in this plan, or is at the moment.
    is_moving: bool,
}

impl Window {
    /// Of a policy's nodes: those that it selects, and those that it leaves.
    pub(super) fn of(rollout: &Rollout<'_>, plan: &RolloutPlan) -> Self {
        let is_counted = |name: &str| plan.in_flight.contains(name);
        let counted: BTreeSet<String> = rollout
            .nodes
            .iter()
            .filter(|node| {
                let is_failing = plan.has_failed(node.name) && node.fault.is_some();
                is_counted(node.name) || is_failing || node.is_unavailable() || node.is_busy
            })
            .map(|node| node.name.to_owned())
            .collect();
        let limit = rollout.policy.rules.max_unavailable(rollout.nodes.len());
        let is_moving = rollout.nodes.iter().any(|node| node.sent.is_some() && node.is_reachable());
        Self { left: limit.saturating_sub(counted.len()), counted, is_moving }
    }

    /// Whether the node is unavailable already, so that a change of it makes no further one so.
    pub(super) fn counts(&self, node: &str) -> bool {
        self.counted.contains(node)
    }

    /// Takes a place for a node, if there is one.
    pub(super) fn take(&mut self, node: &str) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        self.is_moving = true;
        self.counted.insert(node.to_owned())
    }

    /// Takes a place; without one, only if no other node moves: a rollback never waits for nodes that stay broken.
    pub(super) fn take_at_least_one(&mut self, node: &str) -> bool {
        if self.left == 0 && !self.is_moving {
            self.left = 1;
        }
        self.take(node)
    }
}
