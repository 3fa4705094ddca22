//! The status of a NodeTask: which nodes run, which are done, which failed. The controller bounds it: with a spec at its largest,
//! an object takes at most 4 KB for any number of nodes.
#![expect(unreachable_pub, reason = "KubeSchema writes a public copy of each struct into a function")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use vcn::words;

use super::NodeTaskSpec;
use crate::condition::reason::TaskReason;
use crate::condition::{Condition, Reason as _, cut, stored};
use crate::schema;

/// The most problems before a reboot.
pub const PROBLEMS_MAX: usize = 8;
/// The most characters of one.
pub const PROBLEM_MAX: usize = 64;
/// The most failed nodes in a status.
pub const FAILURES_MAX: usize = 10;
/// The most bytes that etcd holds of a NodeTask. Labels, annotations and finalizers of other writers come on top.
pub const OBJECT_MAX: usize = 4096;
/// The most bytes that metadata take, with the names that JSON adds to spec and status.
const METADATA: usize = 1050;
/// The most bytes of a node's name: a Linux host name has no more than 64.
const NODE_MAX: usize = 64;
/// The most bytes of a message.
const MESSAGE_MAX: usize = 160;

/// Progress, and what the next leader needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct NodeTaskStatus {
    /// The state.
    #[serde(default, deserialize_with = "crate::lenient", skip_serializing_if = "Option::is_none")]
    pub state: Option<TaskState>,
    /// A stable reason; for a task with one node, the node's reason.
    #[serde(default, deserialize_with = "crate::lenient", skip_serializing_if = "String::is_empty")]
    #[schemars(schema_with = "schema::word::<0, 32>")]
    pub reason: String,
    /// The reason in words, or what a running node waits for.
    #[serde(default, deserialize_with = "crate::lenient", skip_serializing_if = "String::is_empty")]
    #[schemars(schema_with = "schema::text::<160>")]
    pub message: String,
    /// The last node that started, in the order of names: nodes up to it are done, or in running.
    #[serde(default, deserialize_with = "cursor", skip_serializing_if = "String::is_empty")]
    #[schemars(schema_with = "schema::text::<253>")]
    pub cursor: String,
    /// A digest of the uids of the nodes that matched at the start, in Base64. It contains each of them, and rarely another uid.
    #[serde(default, deserialize_with = "crate::lenient", skip_serializing_if = "String::is_empty")]
    #[schemars(schema_with = "schema::text::<352>")]
    pub selected: String,
    /// The nodes on which the action runs, at most 16.
    #[serde(default, deserialize_with = "running", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub running: Vec<RunningNode>,
    /// Numbers of nodes.
    #[serde(default, deserialize_with = "crate::lenient", skip_serializing_if = "Option::is_none")]
    pub nodes: Option<TaskCounts>,
    /// For a task with a selector, up to 10 failed nodes; fewer if the object would exceed 4 KB.
    #[serde(default, deserialize_with = "crate::lenient_list", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10), extend("x-kubernetes-list-type" = "atomic"))]
    pub failures: Vec<FailedNode>,
    /// The creator: the user in the annotation oke.oraclecloud.com/created-by, or else the program that created the task.
    #[serde(default, deserialize_with = "crate::lenient", skip_serializing_if = "String::is_empty")]
    #[schemars(schema_with = "schema::text::<64>")]
    pub created_by: String,
    /// When the first node started.
    #[serde(default, deserialize_with = "crate::lenient", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub start_time: Option<Time>,
    /// When the task finished.
    #[serde(default, deserialize_with = "crate::lenient", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub completion_time: Option<Time>,
    /// Complete or Failed, as in Jobs; empty until the task finishes.
    #[serde(default, deserialize_with = "crate::lenient_list", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// The state of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum TaskState {
    /// No node started.
    Pending,
    /// Nodes started.
    Running,
    /// The stop switch is on: no further node starts until it is off.
    Stopped,
    /// All nodes are done, and no more failed than maxFailures allows.
    Succeeded,
    /// Too many nodes failed.
    Failed,
    /// The task did nothing, and will do nothing.
    Refused,
}

words!(TaskState: Pending, Running, Stopped, Succeeded, Failed, Refused);

/// A node on which the action runs. It is written before the step has an effect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct RunningNode {
    /// The Node's name.
    #[schemars(schema_with = "schema::text::<253>")]
    pub node: String,
    /// The step of the action.
    #[schemars(schema_with = "schema::word::<1, 24>")]
    pub step: String,
    /// When the step began.
    #[serde(default, deserialize_with = "crate::lenient", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub since: Option<Time>,
    /// In the step Ending, the reason of the node's result, while the controller removes what the action left.
    #[serde(default, deserialize_with = "crate::lenient", skip_serializing_if = "String::is_empty")]
    #[schemars(schema_with = "schema::word::<0, 32>")]
    pub result: String,
    /// When the node started, if that was before the step.
    #[serde(default, deserialize_with = "crate::lenient", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub start: Option<Time>,
    /// The value that the proof compares: the boot id before a reboot, the ephemeral-storage before a growth.
    #[serde(default, deserialize_with = "crate::lenient", skip_serializing_if = "String::is_empty")]
    #[schemars(schema_with = "schema::text::<64>")]
    pub before: String,
    /// The OCID of the instance that is rebooted.
    #[serde(default, deserialize_with = "crate::lenient", skip_serializing_if = "String::is_empty")]
    #[schemars(schema_with = "schema::text::<128>")]
    pub instance: String,
    /// Up to 8 critical problems before a reboot: the proof considers only new ones.
    #[serde(default, deserialize_with = "crate::lenient_list", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::texts::<8, 64>", extend("x-kubernetes-list-type" = "atomic"))]
    pub problems: Vec<String>,
}

/// A node that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct FailedNode {
    /// The Node's name.
    #[schemars(schema_with = "schema::text::<253>")]
    pub node: String,
    /// A stable reason: docs/resources.md.
    #[schemars(schema_with = "schema::word::<1, 32>")]
    pub reason: String,
    /// The reason in words; absent if the reason alone is clear.
    #[serde(default, deserialize_with = "crate::lenient", skip_serializing_if = "String::is_empty")]
    #[schemars(schema_with = "schema::text::<160>")]
    pub message: String,
}

/// The nodes of a task in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct TaskCounts {
    /// Nodes that matched when the task started.
    #[serde(default, deserialize_with = "crate::lenient")]
    #[schemars(schema_with = "schema::count")]
    pub matched: u32,
    /// Nodes on which the action succeeded.
    #[serde(default, deserialize_with = "crate::lenient")]
    #[schemars(schema_with = "schema::count")]
    pub succeeded: u32,
    /// Nodes on which the action failed.
    #[serde(default, deserialize_with = "crate::lenient")]
    #[schemars(schema_with = "schema::count")]
    pub failed: u32,
    /// Skipped nodes: they match too late, were deleted, or another operation works on them.
    #[serde(default, deserialize_with = "crate::lenient")]
    #[schemars(schema_with = "schema::count")]
    pub skipped: u32,
    /// Skipped nodes that matched only after the task had started.
    #[serde(default, deserialize_with = "crate::lenient")]
    #[schemars(schema_with = "schema::count")]
    pub late: u32,
}

impl TaskState {
    /// Whether nothing happens any more.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Refused)
    }
}

impl NodeTaskStatus {
    /// Whether nothing happens any more.
    pub fn is_final(&self) -> bool {
        self.state.is_some_and(TaskState::is_final)
    }

    /// Shortens the status to [`OBJECT_MAX`] with this spec: first messages, then failed nodes, which stay counted.
    #[must_use]
    pub fn bounded(mut self, spec: &NodeTaskSpec) -> Self {
        self.message = cut(&self.message, MESSAGE_MAX);
        self.failures.truncate(FAILURES_MAX);
        let length =
            |value: Result<String, _>| value.map_or(0, |text: String| stored(&text) - text.matches('"').count());
        let room = OBJECT_MAX.saturating_sub(METADATA + length(serde_json::to_string(spec)));
        let is_too_long = |status: &Self| length(serde_json::to_string(status)) > room;
        for index in (0..self.failures.len()).rev() {
            if is_too_long(&self)
                && let Some(failure) = self.failures.get_mut(index)
            {
                failure.message.clear();
            }
        }
        while is_too_long(&self) && self.failures.pop().is_some() {}
        if is_too_long(&self) {
            self.message.clear();
        }
        self
    }
}

/// The cursor in place of one that cannot be read. It is after every Node's name, so that no node starts.
const UNREADABLE: &str = "~unreadable";

impl NodeTaskStatus {
    /// Whether a part is missing that keeps a node from having an action twice.
    pub fn is_unreadable(&self) -> bool {
        let is_begun = self.start_time.is_some() || !self.running.is_empty();
        let is_lost = is_begun && self.cursor.is_empty();
        self.state.is_none()
            || is_lost
            || self.cursor == UNREADABLE
            || self.running.iter().any(|it| it.node == UNREADABLE)
    }
}

fn cursor<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(value.as_str().unwrap_or(UNREADABLE).to_owned())
}

/// An unreadable entry stays an entry, because the action may have left something on its node.
fn running<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<RunningNode>, D::Error> {
    let unreadable =
        || RunningNode { node: UNREADABLE.to_owned(), step: "Unreadable".to_owned(), ..RunningNode::default() };
    let Value::Array(elements) = Value::deserialize(deserializer)? else { return Ok(vec![unreadable()]) };
    Ok(elements.into_iter().map(|element| RunningNode::deserialize(element).unwrap_or_else(|_| unreadable())).collect())
}

impl FailedNode {
    /// Within the bounds of a status.
    pub fn new(node: &str, reason: TaskReason, message: &str) -> Self {
        Self { node: cut(node, NODE_MAX), reason: reason.as_str().to_owned(), message: cut(message, MESSAGE_MAX) }
    }
}
