//! The leader's task for NodeTasks: computes the next step of each task, and carries it out.
//!
//! ```text
//!   every two seconds, and on changes: calls of actions (bounded, on their own) ─▶ outcomes ─▶ plans ─▶ statuses written ─▶ calls
//! ```

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::node_task::RunningNode;
use api::{NodeTask, NodeTaskStatus, Received, TaskReason};
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::jiff::Timestamp;
use kube::{Api, ResourceExt as _};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

use super::action::{ENDING, Next, OtherReboot, STARTED, StepInput, TaskContext};
use super::dispatch::{advance, apply, undo};
use super::memory::{Memory, StepKey};
use super::objects::{FINISHED_MAX, TaskObjects, bounded};
use super::occupancy::Occupancy;
use super::plan::{BusyNodes, TaskInput, TaskPlan, World, leftovers, plan};
use super::results::{Outcome, TaskClock};
use super::selection::{NodesByName, is_unreadable};
use crate::cluster::stop_switch::StopSwitch;
use crate::cluster::store::{NodeView, WatchedKind, follow};
use crate::fleet::roster::AgentView;

/// The least time between two steps, and the most while a task is not finished, or all are.
const PACE: Duration = Duration::from_millis(500);
const ACTIVE_INTERVAL: Duration = Duration::from_secs(2);
const IDLE_INTERVAL: Duration = Duration::from_secs(30);
/// Calls of actions at once.
const CALLS_MAX: usize = 64;
/// How long a leader watches before it finds that a deadline passed.
const SETTLING: Duration = Duration::from_mins(3);
/// Failed attempts to remove what a task left on a node, without the rights of tasks.
const UNDO_MAX: u32 = 5;
/// Between two writes of a status that differs in words only.
const WORDS_EVERY: Duration = Duration::from_secs(10);
/// Objects per page of a list.
const PAGE: u32 = 100;

pub(crate) struct TaskRunner {
    pub context: TaskContext,
}

/// The result of a call of an action.
enum Answer {
    /// The observation failed or timed out.
    None(StepKey),
    Outcome(StepKey, Outcome),
    Applied(StepKey, Result<(), String>),
}

/// The calls in flight. Each belongs to a node of a task.
#[derive(Default)]
struct Calls<'a> {
    futures: FuturesUnordered<BoxFuture<'a, Answer>>,
    nodes: HashSet<(String, String)>,
}

/// What one step sees.
struct Surroundings {
    objects: Vec<Arc<NodeTask>>,
    views: Vec<Arc<NodeView>>,
    stopped: Option<String>,
    now: Timestamp,
    is_settled: bool,
}

impl Answer {
    const fn key(&self) -> &StepKey {
        match self {
            Self::None(key) | Self::Outcome(key, _) | Self::Applied(key, _) => key,
        }
    }
}

impl TaskRunner {
    /// Works until dropped. `nodes` becomes true when all Nodes are known.
    pub(crate) async fn run(self, mut nodes: watch::Receiver<bool>, stopped: watch::Receiver<StopSwitch>) {
        let objects: Mutex<TaskObjects> = Mutex::default();
        let (changed, (read, mut is_read)) = (Notify::new(), watch::channel(false));
        let watched = WatchedKind {
            client: self.context.client.clone(),
            api: Api::<Received<NodeTask>>::all,
            page: PAGE,
            labels: None,
            what: "NodeTasks",
            watches: self.context.store.watches(),
        };
        let take = |news| {
            objects.lock().unwrap_or_else(PoisonError::into_inner).take(news);
            changed.notify_one();
        };
        let working = async {
            for known in [&mut nodes, &mut is_read] {
                if known.wait_for(|known| *known).await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
            self.work(&objects, &changed, stopped).await;
        };
        // Neither of them ends.
        tokio::join!(follow(watched, read, bounded, take), working);
    }

    async fn work(&self, objects: &Mutex<TaskObjects>, changed: &Notify, mut stopped: watch::Receiver<StopSwitch>) {
        let (mut memory, mut calls, began) = (Memory::default(), Calls::default(), Instant::now());
        loop {
            let surroundings = Surroundings {
                objects: objects.lock().unwrap_or_else(PoisonError::into_inner).by_age(),
                views: self.context.store.nodes().iter().cloned().collect(),
                stopped: stopped.borrow_and_update().reason().map(str::to_owned),
                now: Timestamp::now(),
                is_settled: began.elapsed() >= SETTLING,
            };
            let is_moving = self.step(&surroundings, &mut memory, &mut calls).await;
            let earliest = Instant::now() + PACE;
            let mut next = Instant::now() + if is_moving { ACTIVE_INTERVAL } else { IDLE_INTERVAL };
            loop {
                // Cancel-safe: a call stays in its set, notification and switch are stored, and the time is absolute.
                tokio::select! {
                    Some(answer) = calls.futures.next() => {
                        if self.note(answer, &mut memory, &mut calls) {
                            next = next.min(earliest);
                        }
                    }
                    () = changed.notified() => next = next.min(earliest),
                    Ok(()) = stopped.changed() => next = next.min(earliest),
                    () = sleep_until(next) => break,
                }
            }
        }
    }

    /// Records the result of a call. Returns whether the next step needs it.
    fn note(&self, answer: Answer, memory: &mut Memory, calls: &mut Calls<'_>) -> bool {
        calls.nodes.remove(&(answer.key().uid.clone(), answer.key().node.clone()));
        match answer {
            Answer::None(key) => {
                tracing::warn!(event = "node_task.unobserved", node = key.node, step = key.step, "retried");
                false
            }
            Answer::Outcome(key, Outcome::Undone(Err(error))) => {
                tracing::warn!(event = "node_task.undo", node = key.node, error, "retried");
                let is_given_up = !self.context.enabled.is_any && memory.note_failure(&key) >= UNDO_MAX;
                if is_given_up {
                    tracing::warn!(
                        event = "node_task.left",
                        node = key.node,
                        "tasks are off, so what the task left on the node stays: docs/node-tasks.md"
                    );
                }
                memory.note_outcome(key, Outcome::Undone(if is_given_up { Ok(true) } else { Err(error) }));
                is_given_up
            }
            Answer::Outcome(key, outcome) => {
                let is_news = !matches!(outcome, Outcome::Next(Next::Wait(_)) | Outcome::Undone(Ok(false)));
                let is_due = !memory.is_known(&key);
                memory.note_outcome(key, outcome);
                is_news || is_due
            }
            Answer::Applied(key, result) => {
                if let Err(error) = &result {
                    tracing::warn!(event = "node_task.apply", node = key.node, step = key.step, error, "retried");
                }
                memory.note_applied(key, result.is_ok());
                true
            }
        }
    }

    /// One step of all tasks. Whether one of them is not finished.
    async fn step<'a>(&'a self, around: &Surroundings, memory: &mut Memory, calls: &mut Calls<'a>) -> bool {
        self.context.growths.set(around.objects.iter().map(|object| &**object));
        memory.retain(&around.objects.iter().filter_map(|object| object.uid()).collect());
        let nodes: NodesByName<'_> = around.views.iter().map(|view| (view.name.as_str(), &**view)).collect();
        let (mut is_moving, mut occupancy, none) = (false, Occupancy::default(), BusyNodes::default());
        around.objects.iter().for_each(|object| occupancy.note(object, memory.last_status(object)));
        for object in &around.objects {
            let Ok(status) = memory.status(object).map(|status| status.cloned()) else {
                is_moving = true;
                continue;
            };
            let is_final = status.as_ref().is_some_and(NodeTaskStatus::is_final) || is_unreadable(object);
            is_moving |= !is_final || object.metadata.deletion_timestamp.is_some();
            let outcomes = outcomes(object, status.as_ref(), memory);
            let uid = object.uid().unwrap_or_default();
            let world = World {
                nodes: &nodes,
                enabled: self.context.enabled,
                stopped: around.stopped.as_deref(),
                times: TaskClock { now: around.now, ages: &self.context.ages },
                is_settled: around.is_settled,
                busy: if object.spec.action.capture.is_some() { &none } else { &occupancy.nodes },
                has_slot: occupancy.has_slot(&uid),
            };
            let left = if object.metadata.deletion_timestamp.is_some() {
                leftovers(object, status.as_ref())
            } else {
                status.as_ref().map(|status| status.running.clone()).unwrap_or_default()
            };
            let is_undone = left.iter().all(|running| memory.is_undone(&uid, &running.node));
            let input = TaskInput { object, status: status.as_ref(), outcomes: &outcomes, is_undone };
            let plan = plan(&input, &world);
            self.carry_out(object, plan, memory, &around.views).await;
            occupancy.note(object, memory.last_status(object));
        }
        self.context.ages.forget_old(Instant::now());
        self.delete_oldest(&around.objects, memory).await;
        for object in &around.objects {
            self.call(object, around, memory, calls);
        }
        self.context.metrics.tasks.set(
            &around.objects,
            |object| memory.status(object).ok().flatten().and_then(|it| it.state),
            around.now,
        );
        is_moving
    }

    /// Deletes the oldest finished tasks without a TTL beyond the limit.
    async fn delete_oldest(&self, objects: &[Arc<NodeTask>], memory: &Memory) {
        let is_final = |object: &&Arc<NodeTask>| memory.last_status(object).is_some_and(NodeTaskStatus::is_final);
        let mut finished = objects.iter().filter(is_final);
        if finished.clone().count() > FINISHED_MAX
            && let Some(oldest) = finished.next()
        {
            self.context.delete_task(oldest).await;
        }
    }

    async fn carry_out(&self, object: &Arc<NodeTask>, plan: TaskPlan, memory: &mut Memory, views: &[Arc<NodeView>]) {
        let uid = object.uid().unwrap_or_default();
        if plan.is_expired {
            return self.context.delete_task(object).await;
        }
        if let Some(change) = plan.finalizer {
            self.context.write_task_finalizer(object, change).await;
        }
        let Some(status) = plan.status else { return };
        let is_early = memory.age(&uid).is_some_and(|age| age < WORDS_EVERY);
        if !plan.is_urgent && is_early || !self.context.write_task_status(object, &status, memory).await {
            return;
        }
        for running in status.running.iter().filter(|running| plan.begun.contains(&running.node)) {
            memory.note_begun(StepKey::new(&uid, running));
        }
        for event in plan.events {
            if let Some(view) = views.iter().find(|view| view.name == event.node) {
                self.context.events.report(event.content(object, &status, view.reference()));
            }
            self.context.metrics.tasks.count(object, event.reason());
        }
    }

    /// Calls the actions of a task's nodes that have no call in flight.
    fn call<'a>(&'a self, object: &Arc<NodeTask>, around: &Surroundings, memory: &mut Memory, calls: &mut Calls<'a>) {
        let Ok(status) = memory.status(object).map(|status| status.cloned()) else { return };
        let uid = object.uid().unwrap_or_default();
        let is_deleted = object.metadata.deletion_timestamp.is_some();
        if is_unreadable(object) && !is_deleted {
            return;
        }
        let is_over = is_deleted || status.as_ref().is_some_and(NodeTaskStatus::is_final);
        let left = if is_deleted { leftovers(object, status.as_ref()) } else { status.unwrap_or_default().running };
        for running in left {
            let (key, slot) = (StepKey::new(&uid, &running), (uid.clone(), running.node.clone()));
            if calls.nodes.contains(&slot) || calls.nodes.len() >= CALLS_MAX || memory.has_outcome(&key) {
                continue;
            }
            let is_done = is_over && memory.is_undone(&uid, &running.node);
            let is_stopped = running.step == STARTED && around.stopped.is_some();
            if is_done || is_stopped && !is_over {
                continue;
            }
            let is_enabled = object.spec.action.verb().is_some_and(|verb| self.context.enabled.has(verb));
            if running.step == STARTED && !is_enabled && !is_over {
                let failed =
                    Next::Failed(TaskReason::NotEnabled, "tasks were disabled before the action began".to_owned());
                memory.note_outcome(key, Outcome::Next(failed));
                continue;
            }
            let is_undo = is_over || running.step == ENDING;
            let is_due = !is_undo && running.step != STARTED && memory.is_due(&key);
            let (reboots, is_applied) = (reboots(object, &around.objects, memory), memory.is_applied(&key));
            let input = StepInput { reboots, is_applied, ..self.input(object, running, around) };
            let context = &self.context;
            calls.nodes.insert(slot);
            calls.futures.push(
                async move {
                    if is_undo {
                        Answer::Outcome(key, Outcome::Undone(undo(context, &input).await))
                    } else if is_due {
                        Answer::Applied(key, apply(context, &input).await)
                    } else {
                        match advance(context, &input).await {
                            Some(next) => Answer::Outcome(key, Outcome::Next(next)),
                            None => Answer::None(key),
                        }
                    }
                }
                .boxed(),
            );
        }
    }

    fn input(&self, object: &Arc<NodeTask>, running: RunningNode, around: &Surroundings) -> StepInput {
        let view = around.views.iter().find(|view| view.name == running.node).cloned();
        let agent: AgentView = self.context.roster.lock().agent(&running.node, Instant::now());
        let is_stopped = around.stopped.is_some();
        let (task, now, reboots) = (object.clone(), around.now, Vec::new());
        StepInput { task, running, view, agent, now, is_stopped, is_applied: false, reboots }
    }
}

/// The nodes that other tasks reboot.
fn reboots(object: &NodeTask, objects: &[Arc<NodeTask>], memory: &Memory) -> Vec<OtherReboot> {
    if object.spec.action.reboot.is_none() {
        return Vec::new();
    }
    let is_reboot = |other: &NodeTask| other.spec.action.reboot.is_some() || is_unreadable(other);
    let is_other = |other: &&Arc<NodeTask>| other.metadata.uid != object.metadata.uid && is_reboot(other);
    let running = |other: &Arc<NodeTask>| {
        let status = memory.status(other).ok().flatten().or(other.status.as_ref());
        let running = status.map(|status| status.running.clone()).unwrap_or_default();
        let uid = other.uid().unwrap_or_default();
        // Only reboots have an instance.
        let is_known = !is_unreadable(other);
        let running = running.into_iter().filter(move |it| is_known || !it.instance.is_empty());
        running.map(move |it| OtherReboot { uid: uid.clone(), node: it.node, step: it.step })
    };
    objects.iter().filter(is_other).flat_map(running).collect()
}

/// What became of the task's running nodes.
fn outcomes(object: &NodeTask, status: Option<&NodeTaskStatus>, memory: &mut Memory) -> BTreeMap<String, Outcome> {
    let uid = object.uid().unwrap_or_default();
    let running = status.into_iter().flat_map(|status| &status.running);
    let of = |running: &RunningNode| Some((running.node.clone(), memory.take_outcome(&StepKey::new(&uid, running))?));
    running.filter_map(of).collect()
}
