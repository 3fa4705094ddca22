//! What the rollout of a policy depends on, as plain data.

use std::collections::BTreeSet;
use std::time::Duration;

use api::node_policy::{PolicyRemoval, Rollout};
use api::{NodePolicyStatus, PolicyReason};
use tunables::{DocumentMode, PolicyState};

#[derive(Clone, Copy, Debug)]
pub(crate) struct PolicyFacts<'a> {
    /// The revision of its spec.
    pub target: &'a str,
    /// Whether that revision compares only.
    pub is_report: bool,
    pub rules: Rollout,
    /// The status that the API server has.
    pub written: &'a NodePolicyStatus,
    pub is_paused: bool,
    /// Whether it is being deleted.
    pub is_leaving: bool,
    pub on_delete: PolicyRemoval,
    /// Canaries that certainly got nothing: this leader chose them, and sent them nothing.
    pub replaceable: &'a BTreeSet<String>,
}

/// A node that a policy selects, or that has a revision of it.
#[derive(Clone, Debug)]
pub(crate) struct NodeFacts<'a> {
    pub name: &'a str,
    pub is_selected: bool,
    pub agent: AgentState,
    /// Whether this leader has an answer of it, of now or from before it went silent.
    pub is_answer_known: bool,
    /// What the agent last answered about the policy.
    pub held: Option<HeldRevision<'a>>,
    /// What this leader sent since, and the agent did not confirm yet.
    pub sent: Option<SentRevision<'a>>,
    /// For how long the agent answered with the present revision applied, or without the policy after this leader removed it.
    pub applied_for: Option<Duration>,
    /// Whether it was watched long enough with its present revision.
    pub is_soaked: bool,
    /// Whether this leader sent it its present revision.
    pub is_new: bool,
    /// Whether the policy names items that it may not set, or that no mount permits.
    pub is_incomplete: bool,
    /// Whether the policy has files, and the agent is from a release that knows none.
    pub lacks_files: bool,
    pub is_ready: bool,
    /// What is wrong with the node and was not when its document was sent.
    pub fault: Option<NodeFault>,
    /// Whether another policy changes it at the moment.
    pub is_busy: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgentState {
    /// This leader has not heard of it, and does not know yet whether it answers.
    Pending,
    Answered,
    /// It has not answered for longer than the bound.
    Silent,
    /// It takes no policies, or there is none.
    Unsupported,
}

/// A revision on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldRevision<'a> {
    pub revision: &'a str,
    pub mode: DocumentMode,
    pub state: PolicyState,
}

/// A revision on the way to a node; an empty name takes the policy from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SentRevision<'a> {
    pub revision: &'a str,
    pub mode: DocumentMode,
}

/// What is wrong with a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeFault {
    pub reason: PolicyReason,
    /// The item, or the problem.
    pub item: String,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FleetFacts {
    /// Whether the cluster's stop switch is on.
    pub is_stopped: bool,
    /// Whether so many agents are silent that the fault is probably the leader's.
    pub is_cut_off: bool,
    /// Whether this leader heard of each node of the policy, or knows that it is silent.
    pub is_known: bool,
}

/// What a node must have of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum DueRevision {
    /// The revision of the spec.
    Target,
    /// The last one that worked.
    Stable,
    /// None; the values of this boot come back.
    Absent,
    /// None; the values stay.
    Keep,
    /// What it has, which this leader cannot write again: the node gets no document.
    Unknown,
}

impl NodeFacts<'_> {
    /// The revision that the node has, or is about to have; empty without any.
    pub(crate) fn revision(&self) -> &str {
        match (self.sent, self.held) {
            (Some(sent), _) => sent.revision,
            (None, Some(held)) => held.revision,
            (None, None) => "",
        }
    }

    /// Whether it has, or is about to have, a revision that sets values.
    pub(crate) fn is_applying(&self) -> bool {
        let held = self.held.is_some_and(|held| held.mode == DocumentMode::Apply);
        held || self.sent.is_some_and(|sent| sent.mode == DocumentMode::Apply)
    }

    /// Whether the agent answered that it has the revision, as far as its node can have it.
    pub(crate) fn has(&self, revision: &str) -> bool {
        let is_applied = |held: HeldRevision<'_>| held.revision == revision && held.state == PolicyState::Applied;
        self.sent.is_none() && self.held.is_some_and(is_applied)
    }

    /// Whether a document can be sent to it now.
    pub(crate) fn is_reachable(&self) -> bool {
        self.agent == AgentState::Answered
    }

    /// Whether it counts as unavailable without any change of a policy.
    pub(crate) fn is_unavailable(&self) -> bool {
        !self.is_ready || self.agent == AgentState::Silent
    }
}
