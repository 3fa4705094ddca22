//! A node as the store and the roster have it.

use api::PolicyReason;
use health::Summary;
use health::summary::NodePolicyState;
use tokio::time::Instant;
use tunables::{AnsweredPolicy, Baseline, ItemReport, ItemState, NodeAnswer, PolicyState};

use super::facts::{AgentState, NodeFault};
use crate::cluster::store::NodeView;
use crate::fleet::judge::AgentFacts;

#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeInput<'a> {
    pub view: &'a NodeView,
    pub agent: AgentFacts<'a>,
    /// When its agent last answered.
    pub answered: Option<Instant>,
}

impl NodeInput<'_> {
    pub(crate) fn name(&self) -> &str {
        &self.view.name
    }

    /// What the agent says about its policies, if it takes any.
    pub(crate) fn policy_state(&self) -> Option<&NodePolicyState> {
        self.summary()?.node_policy.as_ref()
    }

    /// What its agent answered last.
    pub(crate) const fn summary(&self) -> Option<&Summary> {
        match self.agent {
            AgentFacts::Answered { summary, .. } => Some(summary),
            AgentFacts::Pending { .. } | AgentFacts::Silent { .. } => None,
        }
    }

    /// Whether the agent's documents may have files.
    pub(crate) fn takes_files(&self) -> bool {
        self.policy_state().is_some_and(|state| state.files)
    }

    /// The state of the agent; `is_answer_known` says whether its answer about its policies was read.
    pub(crate) fn state(&self, is_answer_known: bool) -> AgentState {
        match self.agent {
            AgentFacts::Pending { .. } => AgentState::Pending,
            AgentFacts::Silent { has_agent: false } => AgentState::Unsupported,
            AgentFacts::Silent { has_agent: true } => AgentState::Silent,
            AgentFacts::Answered { summary, .. } => match (&summary.node_policy, is_answer_known) {
                (None, _) => AgentState::Unsupported,
                (Some(_), true) => AgentState::Answered,
                (Some(_), false) => AgentState::Pending,
            },
        }
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.agent == AgentFacts::Silent { has_agent: true }
    }

    pub(crate) fn has_agent(&self) -> bool {
        self.agent != AgentFacts::Silent { has_agent: false }
    }

    pub(crate) const fn is_ready(&self) -> bool {
        self.view.kubelet.is_none()
    }

    /// What it has now, to be compared with later.
    pub(crate) fn baseline(&self) -> Baseline {
        Baseline::new(self.is_ready(), self.problems())
    }

    /// What is wrong and was not when its document was sent.
    pub(crate) fn fault(
        &self,
        held: Option<&AnsweredPolicy>,
        answer: Option<&NodeAnswer>,
        baseline: &Baseline,
    ) -> Option<NodeFault> {
        if let Some(held) = held.filter(|held| held.state == PolicyState::Failed) {
            let is_failure = |item: &&ItemReport| matches!(item.state, ItemState::RolledBack | ItemState::Failed);
            let item = answer.and_then(|answer| answer.items_of(&held.name).find(is_failure));
            let reason = item.and_then(|item| item.state.reason()).unwrap_or(PolicyReason::Failed);
            return Some(NodeFault { reason, item: item.map(|item| item.item.clone()).unwrap_or_default() });
        }
        if baseline.ready && !self.is_ready() {
            return Some(NodeFault { reason: PolicyReason::NodeNotReady, item: String::new() });
        }
        let mut new = self.problems().filter(|problem| !baseline.problems.contains(problem));
        // A full baseline does not name all problems.
        let is_whole = baseline.problems.len() < tunables::document::PROBLEMS_MAX;
        is_whole.then(|| new.next()).flatten().map(|item| NodeFault { reason: PolicyReason::NewProblem, item })
    }

    fn problems(&self) -> impl Iterator<Item = String> + use<'_> {
        self.summary().into_iter().flat_map(Summary::critical_problems)
    }
}
