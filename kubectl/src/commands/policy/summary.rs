//! A policy in short: from its object, or from the leader's view where the object cannot be read.

use std::collections::BTreeSet;

use api::condition::{self, ConditionType};
use api::node_policy::{FailingNode, PolicyCounts};
use api::{Condition, NodePolicy, PolicyReason, Reason as _};
use command::page::Page;
use serde::Serialize;
use tunables::view::PolicyView;

/// A policy without its nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PolicySummary {
    pub name: String,
    pub mode: String,
    pub priority: u16,
    /// The user or program that created it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub created_by: String,
    /// The reason of its condition Progressing.
    pub progress: String,
    /// That reason in words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub progress_message: String,
    /// The reason of its condition Applied.
    pub applied: String,
    /// That reason in words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub applied_message: String,
    /// The revision of its spec.
    pub target: String,
    /// The last one that worked.
    pub stable: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub rejected: String,
    pub nodes: PolicyCounts,
    /// Nodes that do not have a setting; the first ten.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failing: Vec<FailingNode>,
}

impl PolicySummary {
    pub(crate) fn of(object: &NodePolicy) -> Self {
        let status = object.status.clone().unwrap_or_default();
        let found = |kind| condition::find(&status.conditions, kind).cloned();
        let (progress, applied) = (found(ConditionType::Progressing), found(ConditionType::Applied));
        let reason = |of: &Option<Condition>| of.as_ref().map(|it| it.reason.clone()).unwrap_or_default();
        let message = |of: &Option<Condition>| of.as_ref().map(|it| it.message.clone()).unwrap_or_default();
        Self {
            name: object.metadata.name.clone().unwrap_or_default(),
            mode: serde_json::to_value(object.spec.mode)
                .ok()
                .and_then(|it| it.as_str().map(str::to_owned))
                .unwrap_or_default(),
            priority: object.spec.priority(),
            created_by: status.created_by,
            progress: reason(&progress),
            progress_message: message(&progress),
            applied: reason(&applied),
            applied_message: message(&applied),
            target: status.target,
            stable: status.stable.map(|stable| stable.revision).unwrap_or_default(),
            rejected: status.rejected,
            nodes: status.nodes.unwrap_or_default(),
            failing: status.failing,
        }
    }

    /// What the leader knows of it.
    pub(crate) fn of_view(view: &PolicyView) -> Self {
        Self {
            name: view.name.clone(),
            progress: view.progress.clone(),
            progress_message: view.message.clone(),
            applied: view.applied.clone(),
            target: view.target.clone(),
            stable: view.stable.clone(),
            ..Self::default()
        }
    }

    /// Whether no node is to change and all of them have the settings.
    pub(crate) fn is_fine(&self) -> bool {
        self.progress == PolicyReason::Done.as_str()
            && [PolicyReason::Applied, PolicyReason::NoNodes].iter().any(|reason| self.applied == reason.as_str())
    }

    /// The words that say most: of the rollout, or of what is applied.
    pub(crate) fn message(&self) -> &str {
        if self.progress_message.is_empty() { &self.applied_message } else { &self.progress_message }
    }

    /// The reasons that may need action.
    pub(crate) fn reasons(&self) -> impl Iterator<Item = &str> {
        let pending = if self.progress.is_empty() { "" } else { self.applied.as_str() };
        let failing = self.failing.iter().map(|failing| failing.reason.as_str());
        [self.progress.as_str(), pending].into_iter().chain(failing)
    }
}

/// The next step of each reason that is not fine, once.
pub(super) fn show_steps<'a>(page: &mut Page, reasons: impl Iterator<Item = &'a str>) {
    let known: BTreeSet<PolicyReason> = reasons.filter_map(PolicyReason::from_word).collect();
    let steps = known.into_iter().filter(|reason| !matches!(reason.to_do(), "Nothing."));
    for (number, reason) in steps.enumerate() {
        if number == 0 {
            page.line("");
            page.line("Next:");
        }
        page.line(format_args!("  {}: {}", reason.as_str(), reason.to_do()));
    }
}
