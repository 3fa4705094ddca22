//! Root disks: which nodes have unused space, as items of their agents' answers, and for which a NodeTask is created now. The agent only
//! measures it (signal root_disk_unused); the task's Pod grows the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::PolicyReason;
use health::report::Verdict;
use tokio::time::Instant;
use tunables::{DocumentMode, ItemReport, ItemState};

use super::{Actions, Engine, World};
use crate::node_policy::facts::{AgentState, DueRevision, NodeFault};
use crate::node_policy::node_input::NodeInput;
use crate::node_policy::render::PlannedPolicy;
use crate::node_policy::select::CompiledPolicy;
use crate::operations::{Growth, GrowthKey, GrowthTask};

/// The field of the settings, as an item.
const ITEM: &str = "rootDisk";
const SIGNAL: &str = "root_disk_unused";
/// The time in which the watch delivers a new task.
const DELIVERY: Duration = Duration::from_secs(60);
const NOT_GRANTED: &str = "the controller may not grow it: set the chart's value or the add-on's key tasks";

/// What the leader knows about growths.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GrowthWorld<'a> {
    /// Whether tasks are enabled.
    pub is_enabled: bool,
    /// The growths of policies, by their tasks' names, once they are known.
    pub tasks: Option<&'a BTreeMap<String, GrowthTask>>,
}

/// A task to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GrowthRequest {
    pub policy: String,
    pub uid: String,
    pub revision: String,
    pub node: String,
    pub node_uid: String,
}

/// The state of a node's root disk for a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RootDisk {
    /// The agent reports no unused space. The time is that of the growth, if this leader saw it.
    Grown(Option<Instant>),
    /// It has unused space, and the policy only reports that.
    Unused(String),
    NotGranted,
    /// It waits for its task.
    Due(String),
    Running(String),
    NotGrown(String),
    Failed(String),
}

impl GrowthRequest {
    pub(crate) fn key(&self) -> GrowthKey<'_> {
        GrowthKey { policy: &self.policy, uid: &self.uid, revision: &self.revision, node_uid: &self.node_uid }
    }

    fn of(policy: &CompiledPolicy, node: &NodeInput<'_>) -> Self {
        let node_uid = node.view.uid.clone().unwrap_or_else(|| node.name().to_owned());
        let (policy, uid, revision) = (policy.name.clone(), policy.uid.clone(), policy.target.clone());
        Self { policy, uid, revision, node: node.name().to_owned(), node_uid }
    }
}

impl RootDisk {
    pub(super) const fn is_unfinished(&self) -> bool {
        matches!(self, Self::Due(_) | Self::Running(_))
    }

    /// For how long it has been grown.
    pub(super) fn grown_for(&self, now: Instant) -> Option<Duration> {
        match self {
            Self::Grown(since) => since.map(|since| now.saturating_duration_since(since)),
            _ => None,
        }
    }

    pub(super) fn fault(&self) -> Option<NodeFault> {
        let is_failed = matches!(self, Self::Failed(_));
        is_failed.then(|| NodeFault { reason: PolicyReason::Failed, item: ITEM.to_owned() })
    }

    fn item(&self, policy: &str) -> Option<ItemReport> {
        let (state, message) = match self {
            Self::Grown(_) => return None,
            Self::Unused(text) => (ItemState::Drifted, text.clone()),
            Self::NotGranted => (ItemState::NotGranted, NOT_GRANTED.to_owned()),
            Self::Due(text) => (ItemState::Drifted, format!("waits for its turn: {text}")),
            Self::Running(text) => (ItemState::Drifted, format!("a NodeTask grows it: {text}")),
            Self::NotGrown(text) => (ItemState::Unsupported, text.clone()),
            Self::Failed(text) => (ItemState::Failed, text.clone()),
        };
        let (item, desired) = (ITEM.to_owned(), "Grow".to_owned());
        Some(ItemReport { item, policy: policy.to_owned(), state, current: String::new(), desired, message })
    }

    /// From the agent's summary and the node's task.
    fn of(node: &NodeInput<'_>, mode: DocumentMode, task: Option<&Growth>, growth: GrowthWorld<'_>) -> Self {
        let unused = node.problem(SIGNAL);
        match (unused, task) {
            (Some(text), _) if mode != DocumentMode::Apply => Self::Unused(text),
            (_, Some(Growth::Running(text))) if mode == DocumentMode::Apply => Self::Running(text.clone()),
            // The agent measures it every five minutes.
            (None, _) | (_, Some(Growth::Succeeded)) => Self::Grown(None),
            (_, Some(Growth::NotGrown(text))) => Self::NotGrown(text.clone()),
            (_, Some(Growth::Failed(text))) => Self::Failed(text.clone()),
            (Some(_), _) if !growth.is_enabled => Self::NotGranted,
            (Some(text), _) => Self::Due(text),
        }
    }
}

impl NodeInput<'_> {
    /// The message of a check that has a problem.
    fn problem(&self, name: &str) -> Option<String> {
        let checks = self.summary()?.checks.iter();
        let mut found = checks.filter(|check| check.name == name && check.verdict == Verdict::Problem);
        found.next().map(|check| check.message.clone())
    }
}

impl Engine {
    /// Records the states of root disks, also in the answers: the agents do not know whether the leader may grow the disks.
    pub(super) fn note_growths(&mut self, policies: &[CompiledPolicy], world: &World<'_>) {
        let growing = |policy: &&CompiledPolicy| policy.object.spec.settings.root_disk.is_some();
        self.requested_growths.retain(|_, at| world.now.saturating_duration_since(*at) < DELIVERY);
        for node in world.nodes {
            let Some(memory) = self.nodes.get_mut(node.name()) else { continue };
            let Some(known) = memory.answer.as_mut() else { continue };
            known.answer.items.retain(|item| item.item != ITEM);
            let mut disks = BTreeMap::new();
            for policy in policies.iter().filter(growing) {
                let held = known.answer.policy(&policy.uid).filter(|held| held.revision == policy.target);
                let Some(mode) = held.map(|held| held.mode) else { continue };
                let request = GrowthRequest::of(policy, node);
                let name = request.key().task_name();
                let task = world.growth.tasks.and_then(|tasks| tasks.get(&name));
                let task = task.map(|task| task.for_node(&request.key(), node.name()));
                if task.is_some() {
                    self.requested_growths.remove(&name);
                }
                let is_requested = self.requested_growths.contains_key(&name) || world.growth.tasks.is_none();
                let disk = match RootDisk::of(node, mode, task.as_ref(), world.growth) {
                    RootDisk::Due(text) if is_requested => RootDisk::Running(text),
                    RootDisk::Grown(_) => RootDisk::Grown(match memory.root_disks.get(&policy.uid) {
                        Some(RootDisk::Grown(since)) => *since,
                        Some(RootDisk::Running(_)) => Some(world.now),
                        _ => None,
                    }),
                    disk => disk,
                };
                known.answer.items.extend(disk.item(&policy.name));
                disks.insert(policy.uid.clone(), disk);
            }
            memory.root_disks = disks;
        }
    }

    /// Requests tasks, within the budget of each policy.
    pub(super) fn plan_growths(&self, world: &World<'_>, is_cut_off: bool, actions: &mut Actions) {
        if world.stopped.is_some() || is_cut_off || !world.growth.is_enabled {
            return;
        }
        let mut taken: BTreeSet<String> = BTreeSet::new();
        for planned in &self.plans {
            self.plan_growth(planned, world, &mut taken, actions);
        }
    }

    fn plan_growth(
        &self,
        planned: &PlannedPolicy,
        world: &World<'_>,
        taken: &mut BTreeSet<String>,
        actions: &mut Actions,
    ) {
        let PlannedPolicy { policy, plan, .. } = planned;
        let spec = &policy.object.spec;
        let rules = spec.rollout.unwrap_or_default();
        let is_held = spec.paused || policy.is_orphan || policy.object.metadata.deletion_timestamp.is_some();
        let has_failed = !plan.rejected.is_empty() || plan.failed.len() > rules.max_failures();
        if spec.settings.root_disk.is_none() || is_held || has_failed {
            return;
        }
        let disk = |node: &str| self.nodes.get(node).and_then(|memory| memory.root_disks.get(&policy.uid));
        let is_running = |node: &&String| matches!(disk(node), Some(RootDisk::Running(_)));
        let mut changing: BTreeSet<&str> = plan.due.keys().filter(is_running).map(String::as_str).collect();
        changing.extend(plan.unavailable.iter().map(String::as_str));
        let limit = rules.max_unavailable(plan.due.len());
        for node in world.nodes {
            let is_due = matches!(disk(node.name()), Some(RootDisk::Due(_)))
                && plan.due.get(node.name()) == Some(&DueRevision::Target);
            let is_free = node.is_ready() && !node.view.leaving && node.state(true) == AgentState::Answered;
            if is_due && is_free && changing.len() < limit && taken.insert(node.name().to_owned()) {
                changing.insert(node.name());
                actions.grow.push(GrowthRequest::of(policy, node));
            }
        }
    }

    /// A task was created, or a task of this name already existed.
    pub(crate) fn note_growth_requested(&mut self, name: String, now: Instant) {
        self.requested_growths.insert(name, now);
    }
}
