//! Metrics of NodeTasks.

use std::sync::Arc;

use api::node_task::TaskState;
use api::{NodeTask, Reason as _, TaskReason};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use resident::metrics::MetricRegistry;

use super::labels::{TaskResult, TasksInState};

#[derive(Debug)]
pub(crate) struct TaskMetrics {
    states: Family<TasksInState, Gauge>,
    oldest: Gauge,
    results: Family<TaskResult, Counter>,
}

impl TaskMetrics {
    pub(super) fn new(all: &mut MetricRegistry) -> Self {
        Self {
            states: all.family(
                "node_tasks",
                "NodeTasks by state: Pending, Running, Stopped (by the stop switch), Succeeded, Failed or Refused",
            ),
            oldest: all.metric(
                "node_task_oldest_seconds",
                "Seconds since the oldest unfinished NodeTask was created, 0 without one",
            ),
            results: all.family(
                "node_task_results",
                "Nodes on which the action of a NodeTask ended, by action and reason: Succeeded, or why not",
            ),
        }
    }

    /// Counts a node on which an action ended.
    pub(crate) fn count(&self, task: &NodeTask, reason: Option<TaskReason>) {
        let (Some(reason), Some(verb)) = (reason, task.spec.action.verb()) else { return };
        self.results.get_or_create(&TaskResult { action: verb.as_str(), reason: reason.as_str() }).inc();
    }

    /// Replaces what is shown of the tasks.
    pub(crate) fn set(&self, tasks: &[Arc<NodeTask>], state: impl Fn(&NodeTask) -> Option<TaskState>, now: Timestamp) {
        self.states.clear();
        let mut oldest = 0;
        for task in tasks {
            let state = state(task).unwrap_or(TaskState::Pending);
            self.states.get_or_create(&TasksInState { state: state.as_str() }).inc();
            let created = task.creation_timestamp().filter(|_| !state.is_final());
            oldest = oldest.max(created.map_or(0, |time| now.as_second().saturating_sub(time.0.as_second())));
        }
        self.oldest.set(oldest);
    }
}
