//! The documents of nodes, from what each must have of every policy. Nodes with the same revisions share one merge.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use api::NodeSettings;
use api::node_policy::PolicyRemoval;
use tunables::files::{FileGrant, FileOrder};
use tunables::merge::{Conflict, NodeItems, PolicyOfNode, merge};
use tunables::{DocumentMode, NodeAnswer, NodeDocument};

use super::facts::DueRevision;
use super::files::FileBudget;
use super::node_input::NodeInput;
use super::rollout::RolloutPlan;
use super::select::CompiledPolicy;

/// A policy as it was planned.
#[derive(Debug)]
pub(crate) struct PlannedPolicy {
    pub policy: CompiledPolicy,
    pub plan: RolloutPlan,
    /// The status of which the plan is.
    pub stable: Option<api::node_policy::StableRevision>,
    /// Nodes that have it without its files, which their agents do not know.
    pub without_files: BTreeSet<String>,
}

/// What a node must have: policies by their index.
type DuePolicies = Vec<(usize, DueRevision)>;

/// Which document a node last got, so that it is not hashed at every step.
#[derive(Clone, Debug, Default)]
pub(crate) struct RenderedDocument {
    key: u64,
    revision: String,
    /// The hash of the order of its files; empty without any.
    order: String,
}

impl RenderedDocument {
    /// Whether an agent with this document and this order has what this leader sent, or would send.
    pub(crate) fn has(&self, document: &str, order: &str) -> bool {
        !self.order.is_empty() && self.order == order && self.revision == document
    }
}

pub(crate) struct Renderer<'a> {
    plans: &'a [PlannedPolicy],
    cluster: &'a str,
    grants: &'a [FileGrant],
    merged: HashMap<DuePolicies, Arc<NodeItems>>,
    /// Nodes with conflicts of each policy, by its name, and one of them.
    conflicts: BTreeMap<String, (u32, Conflict)>,
}

impl<'a> Renderer<'a> {
    pub(crate) fn new(plans: &'a [PlannedPolicy], cluster: &'a str, grants: &'a [FileGrant]) -> Self {
        Self { plans, cluster, grants, merged: HashMap::new(), conflicts: BTreeMap::new() }
    }

    /// How many nodes have conflicts, by the policy that does not apply.
    pub(crate) fn conflicts(self) -> BTreeMap<String, (u32, Conflict)> {
        self.conflicts
    }

    /// The document that the node must get, if it has another one. None either where it holds a revision that is not known
    /// any more, before that changes.
    pub(crate) fn document(
        &mut self,
        node: &NodeInput<'_>,
        answer: &NodeAnswer,
        rendered: &mut RenderedDocument,
    ) -> Option<NodeDocument> {
        let due = self.plans.iter().enumerate().filter_map(|(index, it)| Some((index, *it.plan.due.get(node.name())?)));
        let due: DuePolicies = due.filter(|(_, due)| *due != DueRevision::Absent).collect();
        if due.iter().any(|(_, due)| *due == DueRevision::Unknown)
            || due.is_empty() && answer.policies.is_empty() && answer.files.is_none()
        {
            return None;
        }
        let items = self.items(&due);
        for conflict in &items.conflicts {
            let count = self.conflicts.entry(conflict.policy.clone()).or_insert_with(|| (0, conflict.clone()));
            count.0 += 1;
        }
        let instance = node.view.instance.as_ref().map(ToString::to_string);
        let mut hasher = DefaultHasher::new();
        (&due, &instance, self.cluster, self.grants, node.takes_files()).hash(&mut hasher);
        for (index, _) in &due {
            let planned = self.plans.get(*index)?;
            let stable = planned.stable.as_ref().map(|stable| &stable.revision);
            let keeps = planned.policy.object.spec.on_delete == PolicyRemoval::Keep;
            (&planned.policy.uid, &planned.policy.target, stable, keeps, index).hash(&mut hasher);
        }
        let key = hasher.finish();
        if rendered.key == key && rendered.revision == answer.document {
            return None;
        }
        let document = items.document(self.cluster, instance.as_deref(), node.baseline());
        let (document, order) = match node.takes_files() {
            true => {
                let document = document.permit(self.grants);
                let (_, order) = FileOrder::of(&document).to_text();
                (document, order)
            }
            false => (document.without_files(), String::new()),
        };
        *rendered = RenderedDocument { key, revision: document.revision.clone(), order };
        (document.revision != answer.document).then_some(document)
    }

    fn items(&mut self, due: &DuePolicies) -> Arc<NodeItems> {
        if let Some(known) = self.merged.get(due) {
            return known.clone();
        }
        let of_node: Vec<PolicyOfNode<'_>> =
            due.iter().filter_map(|(index, due)| self.plans.get(*index)?.of_node(*due)).collect();
        let items = Arc::new(merge(&of_node));
        self.merged.insert(due.clone(), items.clone());
        items
    }
}

impl PlannedPolicy {
    /// The settings of a revision, if they are known.
    pub(crate) fn settings_of(&self, revision: &str) -> Option<&NodeSettings> {
        if revision == self.policy.target {
            return Some(&self.policy.object.spec.settings);
        }
        self.stable.as_ref().filter(|stable| stable.revision == revision).map(|stable| &stable.settings)
    }

    /// What its rollout permits of Pods, by its uid.
    pub(crate) fn file_budget(&self) -> (&str, FileBudget<'_>) {
        let rules = self.policy.object.spec.rollout.unwrap_or_default();
        let budget = FileBudget {
            max_unavailable: rules.max_unavailable(self.plan.due.len()),
            max_failures: rules.max_failures(),
            unavailable: &self.plan.unavailable,
        };
        (&self.policy.uid, budget)
    }

    fn of_node(&self, due: DueRevision) -> Option<PolicyOfNode<'_>> {
        let CompiledPolicy { object, name, uid, created, target, .. } = &self.policy;
        let blank = PolicyOfNode {
            name,
            uid,
            created: *created,
            revision: "",
            priority: object.spec.priority(),
            mode: DocumentMode::Keep,
            on_delete: object.spec.on_delete,
            settings: None,
        };
        match due {
            DueRevision::Target => Some(PolicyOfNode {
                revision: target,
                mode: object.spec.mode.into(),
                settings: Some(&object.spec.settings),
                ..blank
            }),
            DueRevision::Stable => {
                let stable = self.stable.as_ref()?;
                Some(PolicyOfNode {
                    revision: &stable.revision,
                    priority: stable.priority,
                    mode: stable.mode.into(),
                    settings: Some(&stable.settings),
                    ..blank
                })
            }
            DueRevision::Keep => Some(blank),
            DueRevision::Absent | DueRevision::Unknown => None,
        }
    }
}
