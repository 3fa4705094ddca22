//! `task`, `restart`, `grow` and `reboot`: NodeTasks, and how they ended.

use std::collections::BTreeSet;

use anyhow::Context as _;
use api::node_task::{TaskState, TaskVerb};
use api::{NodeTask, NodeTaskStatus, Reason as _, TaskReason};
use command::page::Page;
use kube::ResourceExt as _;
use serde::Serialize;

use crate::answer::{Answer, Exit, Style};
use crate::args::task::TaskRequest;
use crate::cluster::Cluster;
use crate::table::{count, cut, or_dash};
use crate::task_runs;

/// The most characters of a message in a line.
const MESSAGE: usize = 80;

/// A task as it is shown.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TaskSummary {
    pub name: String,
    pub action: String,
    /// The node, or none of a task with a selector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    pub status: NodeTaskStatus,
}

/// All tasks, or one.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Tasks {
    All { tasks: Vec<TaskSummary>, unreadable: Vec<String> },
    One(Box<TaskSummary>),
}

/// Reads all of them, or one.
pub(crate) async fn run(cluster: &Cluster, name: Option<&str>) -> anyhow::Result<Tasks> {
    match name {
        None => {
            let (tasks, unreadable) = cluster.tasks().await?;
            Ok(Tasks::all(tasks.iter().map(TaskSummary::of).collect(), unreadable))
        }
        Some(name) => {
            let task = cluster.object(name).await?.with_context(|| format!("NodeTask {name} does not exist"))?;
            Ok(Tasks::One(Box::new(TaskSummary::of(&task))))
        }
    }
}

/// Creates one, and shows how it ended.
pub(crate) async fn create(cluster: &Cluster, request: &TaskRequest) -> anyhow::Result<Tasks> {
    let task = task_runs::run(cluster, request).await?;
    Ok(Tasks::One(Box::new(TaskSummary::of(&task))))
}

impl TaskSummary {
    pub(crate) fn of(task: &NodeTask) -> Self {
        let action = &task.spec.action;
        let words = match (action.verb(), action.restart_unit) {
            (Some(TaskVerb::RestartUnit), Some(restart)) => format!("restart {}", restart.unit),
            (Some(verb), _) => verb.to_string(),
            (None, _) => String::new(),
        };
        let status = task.status.clone().unwrap_or_default();
        Self { name: task.name_any(), action: words, node: task.spec.node.clone(), status }
    }

    fn state(&self) -> &'static str {
        self.status.state.map_or("", TaskState::as_str)
    }

    const fn is_problem(&self) -> bool {
        matches!(self.status.state, Some(TaskState::Failed | TaskState::Refused | TaskState::Stopped))
    }

    fn row(&self, style: Style) -> Vec<String> {
        let counts = self.status.nodes.unwrap_or_default();
        vec![
            self.name.clone(),
            or_dash(&self.action),
            self.node.clone().unwrap_or_else(|| "selector".to_owned()),
            or_dash(self.state()),
            or_dash(&self.status.reason),
            counts.matched.to_string(),
            counts.succeeded.to_string(),
            counts.failed.to_string(),
            counts.skipped.to_string(),
            or_dash(&self.status.created_by),
            cut(&self.status.message, MESSAGE, style),
        ]
    }

    fn show(&self, page: &mut Page) {
        let Self { name, action, status, .. } = self;
        let on = self.node.as_ref().map_or_else(String::new, |node| format!(" on {node}"));
        let state = if self.state().is_empty() { "created" } else { self.state() };
        page.line(format_args!("NodeTask {name}, {action}{on}: {state}"));
        if !status.message.is_empty() {
            page.line(format_args!("  {}: {}", or_dash(&status.reason), status.message));
        }
        let counts = status.nodes.unwrap_or_default();
        if self.node.is_none() && counts.matched > 0 {
            let (done, late) = (counts.succeeded + counts.failed, counts.late);
            page.line(format_args!("  {done} of {} nodes done, {late} matched too late", counts.matched));
        }
        for running in &status.running {
            page.line(format_args!("  {}: {}", running.node, running.step));
        }
        for failure in &status.failures {
            let message = if failure.message.is_empty() { String::new() } else { format!(": {}", failure.message) };
            page.line(format_args!("  {} {}{message}", failure.node, failure.reason));
        }
        if !status.is_final() {
            page.line(format_args!(
                "Next: `kubectl oke-node task {name}`; `kubectl delete nodetask {name}` cancels it."
            ));
        }
    }

    /// The reasons of failures, whose next steps are shown.
    fn reasons(&self) -> impl Iterator<Item = &str> {
        let own = self.is_problem().then_some(self.status.reason.as_str());
        own.into_iter().chain(self.status.failures.iter().map(|failure| failure.reason.as_str()))
    }
}

impl Tasks {
    pub(crate) fn all(mut tasks: Vec<TaskSummary>, unreadable: Vec<String>) -> Self {
        tasks.sort_by(|a, b| (a.status.state, &a.name).cmp(&(b.status.state, &b.name)));
        Self::All { tasks, unreadable }
    }
}

impl Answer for Tasks {
    fn exit(&self) -> Exit {
        match self {
            Self::One(task) if task.status.state == Some(TaskState::Refused) => Exit::Usage,
            Self::One(task) if task.is_problem() => Exit::Problem,
            Self::All { tasks, unreadable } if !unreadable.is_empty() || tasks.iter().any(TaskSummary::is_problem) => {
                Exit::Problem
            }
            Self::One(_) | Self::All { .. } => Exit::Fine,
        }
    }

    fn show(&self, page: &mut Page, style: Style) {
        let tasks = match self {
            Self::One(task) => {
                task.show(page);
                std::slice::from_ref(&**task)
            }
            Self::All { tasks, unreadable } => {
                let head = [
                    "NODETASK",
                    "ACTION",
                    "NODE",
                    "STATE",
                    "REASON",
                    "NODES",
                    "SUCCEEDED",
                    "FAILED",
                    "SKIPPED",
                    "CREATED BY",
                    "MESSAGE",
                ];
                if !tasks.is_empty() {
                    page.columns(&head, tasks.iter().map(|task| task.row(style)));
                    page.line("");
                }
                page.line(count(tasks.len(), "NodeTask"));
                if !unreadable.is_empty() {
                    let names = unreadable.join(", ");
                    page.line(format_args!("A later version wrote these; update this program to read them: {names}"));
                }
                tasks
            }
        };
        let reasons: BTreeSet<&str> = tasks.iter().flat_map(TaskSummary::reasons).collect();
        for reason in reasons.into_iter().filter_map(TaskReason::from_word) {
            page.line(format_args!("{}: {}", reason.as_str(), reason.meaning()));
            page.line(format_args!("  Next: {}", reason.to_do()));
        }
    }
}
