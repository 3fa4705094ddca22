//! Growths of root disks that NodePolicies request: one NodeTask per node and revision. Its name contains both, so that each leader finds
//! the tasks of former leaders, and no growth happens twice.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use api::node_task::{GrowRootDisk, TaskAction, TaskState};
use api::{NodeTask, NodeTaskSpec, Reason as _, TaskReason};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;
use tunables::revision::place;

/// The prefix of the tasks' names.
const PREFIX: &str = "grow-";
/// The most characters of a policy's name in a task's name, which has at most 63.
const POLICY_MAX: usize = 40;
/// How long a finished task stays. A failed growth is retried after that.
const TTL_SECONDS: u32 = 86_400;

/// The state of a growth on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    Running(String),
    Succeeded,
    /// The node is unchanged, for a reason that is not a fault of the node.
    NotGrown(String),
    Failed(String),
}

/// The policy, revision and node of a growth.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GrowthKey<'a> {
    /// The policy's name and uid, and its revision.
    pub policy: &'a str,
    pub uid: &'a str,
    pub revision: &'a str,
    /// The Node's uid: another node of the same name has another disk.
    pub node_uid: &'a str,
}

/// A NodeTask whose name is that of a growth. Who may create NodeTasks may choose this name, so the name alone identifies nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GrowthTask {
    pub growth: Growth,
    /// The node that it grows, and the uids of its owners.
    node: Option<String>,
    owners: Vec<String>,
}

/// The growths of all policies, by their tasks' names; `None` until all tasks are known.
#[derive(Debug, Default)]
pub(crate) struct PolicyGrowths(Mutex<Option<BTreeMap<String, GrowthTask>>>);

impl GrowthKey<'_> {
    pub(crate) fn task_name(&self) -> String {
        let policy: String = self.policy.chars().take(POLICY_MAX).collect();
        let hash = place(&format!("{}/{}", self.uid, self.revision), self.node_uid);
        let hash = hash.iter().take(8).fold(0_u64, |all, byte| all << 8 | u64::from(*byte));
        format!("{PREFIX}{policy}-{hash:016x}")
    }

    /// The task for a node. If the policy is deleted, it goes, too, but a growth ends first.
    pub(crate) fn task(&self, node: &str) -> NodeTask {
        let spec = NodeTaskSpec {
            node: Some(node.to_owned()),
            node_selector: None,
            action: TaskAction { grow_root_disk: Some(GrowRootDisk {}), ..TaskAction::default() },
            concurrency: None,
            max_failures: None,
            deadline_minutes: None,
            ttl_seconds_after_finished: Some(TTL_SECONDS),
        };
        let mut task = NodeTask::new(&self.task_name(), spec);
        task.metadata.owner_references = Some(vec![OwnerReference {
            api_version: format!("{}/v1alpha1", api::GROUP),
            kind: "NodePolicy".to_owned(),
            name: self.policy.to_owned(),
            uid: self.uid.to_owned(),
            ..OwnerReference::default()
        }]);
        task
    }
}

impl Growth {
    fn of(task: &NodeTask) -> Self {
        let status = task.status.as_ref();
        let message = status.map(|status| status.message.clone()).unwrap_or_default();
        let reason = status.map_or("", |status| status.reason.as_str());
        // Nothing was done on the node.
        const UNTOUCHED: [TaskReason; 6] = [
            TaskReason::NotGrown,
            TaskReason::NotEnabled,
            TaskReason::NodeGone,
            TaskReason::Replaced,
            TaskReason::Outdated,
            TaskReason::Unsupported,
        ];
        match status.and_then(|status| status.state) {
            Some(TaskState::Succeeded) => Self::Succeeded,
            Some(TaskState::Failed | TaskState::Refused) => {
                let is_untouched = UNTOUCHED.iter().any(|it| it.as_str() == reason);
                let text = format!("{reason}: {message}");
                if is_untouched { Self::NotGrown(text) } else { Self::Failed(text) }
            }
            Some(TaskState::Pending | TaskState::Running | TaskState::Stopped) | None => Self::Running(message),
        }
    }
}

impl GrowthTask {
    pub(crate) fn of(task: &NodeTask) -> Self {
        let node = task.spec.node.clone().filter(|_| task.spec.action.grow_root_disk.is_some());
        let owners = task.owner_references().iter().map(|owner| owner.uid.clone()).collect();
        Self { growth: Growth::of(task), node, owners }
    }

    /// The growth of a policy's node. A task that is not for them is in the way.
    pub(crate) fn for_node(&self, key: &GrowthKey<'_>, node: &str) -> Growth {
        let is_own = self.node.as_deref() == Some(node) && self.owners.iter().any(|owner| owner == key.uid);
        let foreign = || Growth::Failed(format!("NodeTask {} is not of this policy. Delete it.", key.task_name()));
        if is_own { self.growth.clone() } else { foreign() }
    }
}

impl PolicyGrowths {
    /// Takes all tasks as they are now.
    pub(crate) fn set<'a>(&self, tasks: impl Iterator<Item = &'a NodeTask>) {
        let growths = tasks
            .map(|task| (task.name_any(), task))
            .filter(|(name, _)| name.starts_with(PREFIX))
            .map(|(name, task)| (name, GrowthTask::of(task)));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(growths.collect());
    }

    /// The growths by the name of their NodeTask; `None` until the tasks have been read once.
    pub(crate) fn get(&self) -> Option<BTreeMap<String, GrowthTask>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const KEY: GrowthKey<'_> = GrowthKey { policy: "web", uid: "u", revision: "r", node_uid: "n" };

    #[test]
    fn name_of_a_task_is_a_dns_label_of_policy_revision_and_node() {
        let long = "a".repeat(63);
        let names = [
            KEY,
            GrowthKey { uid: "v", ..KEY },
            GrowthKey { revision: "s", ..KEY },
            GrowthKey { node_uid: "m", ..KEY },
            GrowthKey { policy: &long, ..KEY },
        ];
        let names: std::collections::BTreeSet<String> = names.iter().map(GrowthKey::task_name).collect();
        assert_eq!(names.len(), 5);
        assert!(names.iter().all(|name| name.len() <= 63 && name.starts_with(PREFIX)), "{names:?}");
        assert_eq!(KEY.task("a").spec.node.as_deref(), Some("a"));
    }

    #[test]
    fn growth_follows_from_the_status_of_its_task() {
        let of = |state: &str, reason: &str| {
            let mut task = KEY.task("a");
            let status = json!({ "state": state, "reason": reason, "message": "m" });
            task.status = Some(serde_json::from_value(status).unwrap());
            Growth::of(&task)
        };
        assert_eq!(Growth::of(&KEY.task("a")), Growth::Running(String::new()));
        assert_eq!(of("Stopped", ""), Growth::Running("m".to_owned()));
        assert_eq!(of("Succeeded", "Succeeded"), Growth::Succeeded);
        assert_eq!(of("Failed", "NotGrown"), Growth::NotGrown("NotGrown: m".to_owned()));
        assert_eq!(of("Failed", "OperationFailed"), Growth::Failed("OperationFailed: m".to_owned()));
        let growths = PolicyGrowths::default();
        assert_eq!(growths.get(), None);
        growths.set([KEY.task("a")].iter());
        assert_eq!(growths.get().unwrap().len(), 1);
    }

    #[test]
    fn task_of_another_node_policy_or_action_is_in_the_way() {
        let growth = |change: fn(&mut NodeTask)| {
            let mut task = KEY.task("a");
            change(&mut task);
            GrowthTask::of(&task).for_node(&KEY, "a")
        };
        assert_eq!(growth(|_| ()), Growth::Running(String::new()));
        let changes: [fn(&mut NodeTask); 3] = [
            |task| task.spec.node = Some("b".to_owned()),
            |task| task.metadata.owner_references = None,
            |task| task.spec.action = TaskAction::default(),
        ];
        for change in changes {
            assert!(matches!(growth(change), Growth::Failed(text) if text.contains("Delete it")));
        }
    }
}
