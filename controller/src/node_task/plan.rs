//! What follows for one task: the status that it must have now. Pure: outcomes of its running nodes, Nodes and times in; a status out,
//! which is written before any effect.

use std::collections::{BTreeMap, HashMap};

use api::node_task::{RunningNode, TaskCounts, TaskState, TaskVerb};
use api::{Condition, ConditionType, NodeTask, NodeTaskStatus, Reason as _, TASK_FINALIZER, TaskReason};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::action::{ENDING, EnabledActions, STARTED};
use super::events::NodeEvent;
use super::progress::{self, NodesLeft};
use super::results::{Clock, Outcome, TaskClock, is_outdated, take};
use super::selection::{NodesByName, digest, is_unreadable, is_younger, matched_at_start, matching};
use crate::cluster::creator::created_by;

/// Nodes on which tasks run, with uid and name of each task.
pub(crate) type BusyNodes = HashMap<String, Vec<(String, String)>>;

/// What is around a task.
pub(crate) struct World<'a> {
    pub nodes: &'a NodesByName<'a>,
    pub enabled: EnabledActions,
    /// Why nothing starts, if the stop switch is on.
    pub stopped: Option<&'a str>,
    pub times: TaskClock<'a>,
    /// Whether this leader has watched for long enough to find that a deadline passed.
    pub is_settled: bool,
    /// Nodes on which tasks run.
    pub busy: &'a BusyNodes,
    /// Whether a further task may run.
    pub has_slot: bool,
}

/// A task with what became of its running nodes.
pub(crate) struct TaskInput<'a> {
    pub object: &'a NodeTask,
    /// The status that was written last.
    pub status: Option<&'a NodeTaskStatus>,
    pub outcomes: &'a BTreeMap<String, Outcome>,
    /// Whether nothing of its [`leftovers`] is left.
    pub is_undone: bool,
}

#[derive(Debug, Default)]
pub(crate) struct TaskPlan {
    /// The status, if it is another one.
    pub status: Option<NodeTaskStatus>,
    /// Whether it differs in more than its texts.
    pub is_urgent: bool,
    /// Nodes with another step, which is applied after the write.
    pub begun: Vec<String>,
    pub events: Vec<NodeEvent>,
    /// Whether the finalizer is set or removed.
    pub finalizer: Option<FinalizerChange>,
    /// Whether the object is deleted, because its time is over.
    pub is_expired: bool,
}

/// A change of our finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FinalizerChange {
    Add,
    Remove,
}

/// The plan of a task.
pub(crate) fn plan(input: &TaskInput<'_>, world: &World<'_>) -> TaskPlan {
    let object = input.object;
    let has_finalizer = object.metadata.finalizers.iter().flatten().any(|it| it == TASK_FINALIZER);
    if object.metadata.deletion_timestamp.is_some() {
        let is_over = has_finalizer && input.is_undone;
        return TaskPlan { finalizer: is_over.then_some(FinalizerChange::Remove), ..TaskPlan::default() };
    }
    if is_unreadable(object) {
        return TaskPlan::default();
    }
    let written = input.status.cloned().unwrap_or_default();
    if written.is_final() {
        let is_kept =
            object.spec.action.verb() == Some(TaskVerb::Capture) && written.state == Some(TaskState::Succeeded);
        return TaskPlan {
            finalizer: (has_finalizer && !is_kept && input.is_undone).then_some(FinalizerChange::Remove),
            is_expired: object
                .spec
                .ttl()
                .is_some_and(|ttl| world.times.age(object, written.completion_time.as_ref()) >= ttl),
            ..TaskPlan::default()
        };
    }
    let mut plan = TaskPlan::default();
    let mut status = written.clone();
    match refusal(input, world) {
        Some((reason, message)) => {
            // Something of it may be on these nodes.
            let running = std::mem::take(&mut status.running);
            let is_outdated = reason == TaskReason::Outdated;
            let state = if is_outdated { TaskState::Failed } else { TaskState::Refused };
            end(&mut status, state, reason, &message, world.times.now);
            status.running = running;
        }
        None => proceed(input, world, &mut status, &mut plan, has_finalizer),
    }
    if status.created_by.is_empty() {
        status.created_by = created_by(&object.metadata);
    }
    let status = status.bounded(&object.spec);
    plan.is_urgent = progress::is_urgent(&written, &status);
    plan.status = (status != written).then_some(status);
    plan
}

/// What a deleted task must undo: its running nodes on which something was done, and the node of its capture.
pub(crate) fn leftovers(object: &NodeTask, status: Option<&NodeTaskStatus>) -> Vec<RunningNode> {
    let running = status.into_iter().flat_map(|status| &status.running);
    let mut left: Vec<RunningNode> = running.filter(|running| running.step != STARTED).cloned().collect();
    let is_captured = status.is_some_and(|status| !status.cursor.is_empty()) && object.spec.action.capture.is_some();
    if let Some(node) = object.spec.node.as_ref().filter(|_| is_captured && left.is_empty()) {
        left.push(RunningNode { node: node.clone(), step: ENDING.to_owned(), ..RunningNode::default() });
    }
    left
}

/// Why the task does nothing at all.
fn refusal(input: &TaskInput<'_>, world: &World<'_>) -> Option<(TaskReason, String)> {
    let object = input.object;
    if input.status.is_some_and(NodeTaskStatus::is_unreadable) {
        return Some((TaskReason::Unreadable, "another program or a later version wrote the status".to_owned()));
    }
    let is_running = input.status.is_some_and(|status| !status.running.is_empty() || !status.cursor.is_empty());
    if !is_running && is_outdated(object, world.times) {
        let waiting = input.status.map_or("no controller ran", |status| &status.message);
        return Some((TaskReason::Outdated, format!("it did not start within a day: {waiting}")));
    }
    let is_enabled = object.spec.action.verb().is_some_and(|verb| world.enabled.has(verb));
    if !is_enabled && !is_running {
        let key = if world.enabled.is_any { "reboot" } else { "tasks" };
        return Some((TaskReason::NotEnabled, format!("the chart's value or the add-on's key {key} is not true")));
    }
    if input.status.is_some() {
        return None;
    }
    match matching(object, world.nodes) {
        Err(error) => Some((TaskReason::InvalidSelector, error)),
        Ok(nodes) if nodes.is_empty() => {
            let named = object.spec.node.as_ref().map(|name| format!("there is no Node {name}"));
            Some((TaskReason::NoNodes, named.unwrap_or_else(|| "the selector matches no Node".to_owned())))
        }
        Ok(_) => None,
    }
}

fn proceed(
    input: &TaskInput<'_>,
    world: &World<'_>,
    status: &mut NodeTaskStatus,
    plan: &mut TaskPlan,
    has_finalizer: bool,
) {
    let object = input.object;
    if status.state.is_none() {
        select(object, world, status);
    }
    let taken = take(
        object,
        status,
        input.outcomes,
        Clock { times: world.times, is_settled: world.is_settled, has_slot: world.has_slot },
    );
    (plan.begun, plan.events) = (taken.begun, taken.events);
    let is_enabled = object.spec.action.verb().is_some_and(|verb| world.enabled.has(verb));
    let failed = status.nodes.unwrap_or_default().failed;
    let may_continue = is_enabled && failed <= object.spec.max_failures();
    let waits = if may_continue { start(object, world, status, plan, has_finalizer) } else { NodesLeft::None };
    if status.running.is_empty() && waits == NodesLeft::None {
        return finish(object, world, status, is_enabled);
    }
    progress::describe(object, world.stopped, status, taken.waiting, &waits);
}

/// The nodes of the task: those that match now.
fn select(object: &NodeTask, world: &World<'_>, status: &mut NodeTaskStatus) {
    let mut nodes = matching(object, world.nodes).unwrap_or_default();
    nodes.retain(|node| !is_younger(object, node));
    let matched = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
    status.nodes = Some(TaskCounts { matched, ..TaskCounts::default() });
    status.selected = digest(object, &nodes);
}

/// Starts the next nodes.
fn start(
    object: &NodeTask,
    world: &World<'_>,
    status: &mut NodeTaskStatus,
    plan: &mut TaskPlan,
    has_finalizer: bool,
) -> NodesLeft {
    if status.running.len() >= object.spec.concurrency() {
        return NodesLeft::Some;
    }
    let matching = matching(object, world.nodes).unwrap_or_default();
    let (matched, late): (Vec<_>, Vec<_>) =
        matching.into_iter().partition(|view| matched_at_start(object, &status.selected, view));
    note_late(status, late.len());
    for view in
        matched.into_iter().filter(|view| status.cursor.is_empty() || view.name > status.cursor).collect::<Vec<_>>()
    {
        if status.running.len() >= object.spec.concurrency() {
            return NodesLeft::Some;
        }
        if let Some(reason) = world.stopped {
            return NodesLeft::Waiting(reason.to_owned());
        }
        let others = world.busy.get(&view.name).into_iter().flatten();
        if let Some((_, other)) = others.into_iter().find(|(uid, _)| Some(uid) != object.metadata.uid.as_ref()) {
            return NodesLeft::Waiting(format!("NodeTask {other} runs on {}", view.name));
        }
        if !world.has_slot && status.running.is_empty() {
            return NodesLeft::Waiting("the maximum number of tasks is running".to_owned());
        }
        if !has_finalizer {
            plan.finalizer = Some(FinalizerChange::Add);
            return NodesLeft::Waiting("the finalizer is being set".to_owned());
        }
        status.cursor.clone_from(&view.name);
        let since = Some(Time(world.times.now));
        status.running.push(RunningNode {
            node: view.name.clone(),
            step: STARTED.to_owned(),
            since,
            ..RunningNode::default()
        });
        status.start_time.get_or_insert(Time(world.times.now));
        plan.events.push(NodeEvent::started(&view.name));
    }
    NodesLeft::None
}

/// Nodes that match too late are skipped. Those that matched and left again stay counted.
fn note_late(status: &mut NodeTaskStatus, late: usize) {
    let counts = status.nodes.get_or_insert_with(TaskCounts::default);
    let late = u32::try_from(late).unwrap_or(u32::MAX).max(counts.late);
    counts.skipped = counts.skipped.saturating_sub(counts.late).saturating_add(late);
    counts.late = late;
}

/// The end of a task without running nodes.
fn finish(object: &NodeTask, world: &World<'_>, status: &mut NodeTaskStatus, is_enabled: bool) {
    let counts = status.nodes.get_or_insert_with(TaskCounts::default);
    let is_over = is_enabled && counts.failed <= object.spec.max_failures();
    if is_over {
        // Nodes that matched and are gone were never started.
        let own = counts.skipped.saturating_sub(counts.late);
        let gone = counts.matched.saturating_sub(counts.succeeded + counts.failed + own);
        counts.skipped = counts.skipped.saturating_add(gone);
    }
    let counts = *counts;
    let single = object.spec.node.as_ref().filter(|_| !status.reason.is_empty());
    let is_success = if object.spec.node.is_some() { counts.succeeded > 0 } else { is_over };
    let state = if is_success { TaskState::Succeeded } else { TaskState::Failed };
    let known = TaskReason::from_word(&status.reason);
    let (reason, message) = match (single, known) {
        (Some(_), Some(reason))
            if counts.succeeded + counts.failed + counts.skipped > 0 && status.start_time.is_some() =>
        {
            (reason, status.message.clone())
        }
        (Some(node), _) if counts.late > 0 => (TaskReason::Replaced, format!("Node {node} was recreated")),
        (Some(node), _) => (TaskReason::NodeGone, format!("Node {node} was deleted before it started")),
        _ if is_success => (TaskReason::Succeeded, progress::sum(counts)),
        _ if !is_enabled => (TaskReason::NotEnabled, progress::sum(counts)),
        _ => (TaskReason::TooManyFailures, progress::sum(counts)),
    };
    end(status, state, reason, &message, world.times.now);
}

fn end(status: &mut NodeTaskStatus, state: TaskState, reason: TaskReason, message: &str, now: Timestamp) {
    let kind = if state == TaskState::Succeeded { ConditionType::Complete } else { ConditionType::Failed };
    status.state = Some(state);
    reason.as_str().clone_into(&mut status.reason);
    message.clone_into(&mut status.message);
    status.selected.clear();
    status.running.clear();
    status.completion_time = Some(Time(now));
    status.conditions = vec![Condition { status: "True".to_owned(), ..Condition::new(kind, reason, "", Time(now)) }];
}
