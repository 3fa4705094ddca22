//! Events on the Nodes of a task, with the task and its creator.

use api::node_task::TaskVerb;
use api::{NodeTask, NodeTaskStatus, Reason as _, TaskReason};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::ResourceExt as _;

use crate::cluster::events::{EventContent, Level};

/// What happened to a node of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeEvent {
    pub node: String,
    /// How it ended; none when it started.
    result: Option<(TaskReason, String)>,
}

impl NodeEvent {
    pub(crate) fn started(node: &str) -> Self {
        Self { node: node.to_owned(), result: None }
    }

    pub(crate) fn of(node: &str, reason: TaskReason, message: &str) -> Self {
        Self { node: node.to_owned(), result: Some((reason, message.to_owned())) }
    }

    /// The reason with which it ended.
    pub(crate) fn reason(&self) -> Option<TaskReason> {
        self.result.as_ref().map(|(reason, _)| *reason)
    }

    /// The Event about the Node.
    pub(crate) fn content(&self, task: &NodeTask, status: &NodeTaskStatus, regarding: ObjectReference) -> EventContent {
        let creator = &status.created_by;
        let by = if creator.is_empty() { String::new() } else { format!(" (created by {creator})") };
        let what = what(task);
        let name = task.name_any();
        let (level, reason, end) = match &self.result {
            None => (Level::Normal, "NodeTaskStarted", "started".to_owned()),
            Some((TaskReason::Succeeded, message)) => (Level::Normal, "NodeTaskSucceeded", join("succeeded", message)),
            Some((reason, message)) => (Level::Warning, reason.as_str(), join(reason.as_str(), message)),
        };
        EventContent {
            regarding,
            level,
            reason,
            action: "RunTask",
            note: format!("NodeTask {name}, {what}: {end}{by}"),
        }
    }
}

fn join(word: &str, message: &str) -> String {
    if message.is_empty() { word.to_owned() } else { format!("{word}: {message}") }
}

/// The action in words.
pub(crate) fn what(task: &NodeTask) -> String {
    let action = &task.spec.action;
    let unit = action.restart_unit.map(|restart| restart.unit);
    match (action.verb(), unit) {
        (Some(TaskVerb::RestartUnit), Some(unit)) => format!("restart of {unit}"),
        (Some(TaskVerb::GrowRootDisk), _) => "growth of the root disk".to_owned(),
        (Some(TaskVerb::Reboot), _) => "reboot".to_owned(),
        (Some(TaskVerb::Capture), _) => "capture".to_owned(),
        _ => "no action".to_owned(),
    }
}
