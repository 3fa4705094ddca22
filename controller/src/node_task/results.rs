//! What a node's outcome changes in the status.

use std::collections::BTreeMap;
use std::time::Duration;

use api::condition::cut;
use api::node_task::{FAILURES_MAX, FailedNode, RunningNode, TaskCounts, TaskVerb};
use api::{NodeTask, NodeTaskStatus, Reason as _, TaskReason};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use super::action::{ENDING, Next, STARTED};
use super::ages::Ages;
use super::events::NodeEvent;

/// The most bytes of a message.
const MESSAGE_MAX: usize = 160;

/// What became of a node since the last step.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// What its action decided.
    Next(Next),
    /// Whether nothing of the action is left on it, or what is in the way.
    Undone(Result<bool, String>),
}

/// What the outcomes of a step lead to.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// Nodes with another step, which is applied after the write.
    pub begun: Vec<String>,
    pub events: Vec<NodeEvent>,
    /// What a node waits for.
    pub waiting: Option<String>,
}

/// The times of a task: what the wall clock shows, and how long this leader has known them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskClock<'a> {
    pub now: Timestamp,
    pub ages: &'a Ages,
}

impl TaskClock<'_> {
    /// The time since a moment; the maximum if the moment is unknown.
    pub(crate) fn age(self, task: &NodeTask, since: Option<&Time>) -> Duration {
        let uid = task.metadata.uid.as_deref().unwrap_or_default();
        since.map_or(Duration::MAX, |since| self.ages.of(uid, since, self.now, Instant::now()))
    }
}

/// How old a task may be when its action begins on the first node.
const START_LIMIT: Duration = Duration::from_hours(24);

/// Whether a task is too old to begin: it may no longer be needed.
pub(crate) fn is_outdated(task: &NodeTask, clock: TaskClock<'_>) -> bool {
    clock.age(task, task.metadata.creation_timestamp.as_ref()) > START_LIMIT
}

fn outdated(waiting: &str) -> Next {
    Next::Failed(TaskReason::Outdated, format!("it did not start within a day: {waiting}"))
}

/// The time, whether this leader has watched for long enough to find that a deadline passed, and whether there is a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock<'a> {
    pub times: TaskClock<'a>,
    pub is_settled: bool,
    /// Whether a further task may have an effect.
    pub has_slot: bool,
}

/// The status while its running nodes are changed.
struct Results<'a> {
    task: &'a NodeTask,
    status: &'a mut NodeTaskStatus,
    now: Timestamp,
    taken: Taken,
}

/// Changes the running nodes of the status, and counts those that ended.
pub(crate) fn take(
    task: &NodeTask,
    status: &mut NodeTaskStatus,
    outcomes: &BTreeMap<String, Outcome>,
    around: Clock<'_>,
) -> Taken {
    let before = std::mem::take(&mut status.running);
    let had_effect = before.iter().any(|running| running.step != STARTED);
    let mut results = Results { task, status, now: around.times.now, taken: Taken::default() };
    for running in before {
        match outcomes.get(&running.node) {
            None if running.step == STARTED && task.spec.node.is_some() && is_outdated(task, around.times) => {
                results.advance(running, outdated("the stop switch was on"));
            }
            None => results.status.running.push(running),
            Some(Outcome::Undone(Ok(true))) if running.step == ENDING => {}
            Some(Outcome::Undone(left)) => {
                let why = left.as_ref().err().map_or("the controller removes what the action left", String::as_str);
                results.wait(running, why);
            }
            Some(Outcome::Next(next)) => {
                let next = in_time(task, &running, next, around);
                let is_first = !had_effect && running.step == STARTED;
                let next = match next {
                    Next::Go(next) if is_first && next.step != STARTED && !around.has_slot => {
                        Next::Wait("the maximum number of tasks is running".to_owned())
                    }
                    next => next,
                };
                results.advance(running, next);
            }
        }
    }
    results.taken
}

/// A node that waits for too long fails; but not before this leader has watched it for a while.
fn in_time(task: &NodeTask, running: &RunningNode, next: &Next, around: Clock<'_>) -> Next {
    let start = running.start.as_ref().or(running.since.as_ref());
    let is_first = running.step == STARTED && task.spec.node.is_some();
    match (next, task.spec.deadline()) {
        (Next::Wait(message), _) if is_first && is_outdated(task, around.times) => outdated(message),
        (Next::Wait(message), Some(deadline)) if around.is_settled && around.times.age(task, start) >= deadline => {
            Next::Failed(TaskReason::DeadlineExceeded, format!("{}: {message}", running.step))
        }
        _ => next.clone(),
    }
}

impl Results<'_> {
    /// It stays as it is.
    fn wait(&mut self, running: RunningNode, why: &str) {
        self.taken.waiting.get_or_insert_with(|| format!("{}: {why}", running.node));
        self.status.running.push(running);
    }

    fn advance(&mut self, running: RunningNode, next: Next) {
        let node = running.node.clone();
        let counts = self.status.nodes.get_or_insert_with(TaskCounts::default);
        let (reason, message) = match next {
            Next::Wait(message) => return self.wait(running, &message),
            Next::Go(next) => {
                let start = running.start.clone().or(running.since.filter(|_| running.step != STARTED));
                self.taken.begun.push(node.clone());
                return self.status.running.push(RunningNode { node, since: Some(Time(self.now)), start, ..next });
            }
            Next::Succeeded(message) => {
                counts.succeeded += 1;
                (TaskReason::Succeeded, message)
            }
            Next::Failed(reason, message) => {
                counts.failed += 1;
                if self.task.spec.node.is_none() && self.status.failures.len() < FAILURES_MAX {
                    self.status.failures.push(FailedNode::new(&node, reason, &message));
                }
                (reason, message)
            }
            Next::Skipped(reason, message) => {
                counts.skipped += 1;
                (reason, message)
            }
        };
        self.taken.events.push(NodeEvent::of(&node, reason, &message));
        if self.task.spec.node.is_some() {
            (self.status.reason, self.status.message) = (reason.as_str().to_owned(), cut(&message, MESSAGE_MAX));
        }
        // A finished capture stays on the node until its task is deleted.
        let is_kept = self.task.spec.action.verb() == Some(TaskVerb::Capture) && reason == TaskReason::Succeeded;
        if running.step != STARTED && !is_kept {
            let result = reason.as_str().to_owned();
            let ending = RunningNode { step: ENDING.to_owned(), since: None, start: None, result, ..running };
            self.status.running.push(ending);
        }
    }
}
