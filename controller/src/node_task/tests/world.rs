//! A cluster in memory: one task, its nodes, and an action that leaves a Pod on each. A leader can be killed between any two of its
//! acts: the write of a status, a call of the action, the next step.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use api::node_task::{OBJECT_MAX, RunningNode, TaskState};
use api::{NodeTask, NodeTaskStatus, TASK_FINALIZER, TaskReason};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::cluster::store::NodeView;
use crate::node_task::action::{ENDING, EnabledActions, Next, STARTED};
use crate::node_task::ages::Ages;
use crate::node_task::memory::{Memory, StepKey};
use crate::node_task::plan::{FinalizerChange, TaskInput, TaskPlan, World, leftovers, plan};
use crate::node_task::results::{Outcome, TaskClock};
use crate::node_task::selection::NodesByName;

/// The step with an effect.
const OPERATING: &str = "Operating";

pub(super) struct Cluster {
    pub(super) task: NodeTask,
    pub(super) nodes: Vec<NodeView>,
    pub(super) now: Timestamp,
    pub(super) stopped: Option<&'static str>,
    pub(super) enabled: EnabledActions,
    /// Nodes whose action fails, and those whose Pod does not end.
    pub(super) failing: BTreeSet<String>,
    pub(super) hanging: BTreeSet<String>,
    /// The Pods that are there, and how often one was created on a node.
    pub(super) pods: BTreeSet<String>,
    pub(super) created: BTreeMap<String, u32>,
    /// The nodes in the order of their first Pods.
    pub(super) order: Vec<String>,
    /// The most nodes that ran at once.
    pub(super) most: usize,
    /// Whether another task may run.
    pub(super) has_slot: bool,
    /// What the leader knows of times; by the wall clock alone if absent.
    pub(super) ages: Option<Ages>,
    /// Whether the object is gone.
    pub(super) is_gone: bool,
    version: u64,
    acts: usize,
    /// The leader is killed after each so many acts.
    kill_every: usize,
}

struct Killed;

pub(super) fn at(second: i64) -> Timestamp {
    "2026-11-29T00:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(second)
}

pub(super) fn node(number: u32) -> NodeView {
    let labels = [("pool".to_owned(), "web".to_owned())].into_iter().collect();
    NodeView {
        name: format!("10.0.{}.{}", number / 100, number % 100),
        uid: Some(format!("uid-{number}")),
        labels,
        created: Some(at(-1000)),
        ..NodeView::default()
    }
}

pub(super) fn selecting(more: Value) -> Value {
    let mut spec = json!({ "nodeSelector": { "matchLabels": { "pool": "web" } }, "action": { "growRootDisk": {} } });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

impl Cluster {
    pub(super) fn new(nodes: u32, spec: Value) -> Self {
        let annotations = json!({ api::CREATED_BY_ANNOTATION: "alice" });
        let metadata = json!({ "name": "task", "uid": "u", "resourceVersion": "1", "creationTimestamp": at(0).to_string(),
            "annotations": annotations });
        Self {
            task: serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap(),
            nodes: (0..nodes).map(node).collect(),
            now: at(0),
            stopped: None,
            enabled: EnabledActions { is_any: true, is_reboot: true },
            failing: BTreeSet::new(),
            hanging: BTreeSet::new(),
            pods: BTreeSet::new(),
            created: BTreeMap::new(),
            order: Vec::new(),
            most: 0,
            has_slot: true,
            ages: None,
            is_gone: false,
            version: 1,
            acts: 0,
            kill_every: usize::MAX,
        }
    }

    pub(super) fn killing_every(mut self, acts: usize) -> Self {
        self.kill_every = acts;
        self
    }

    pub(super) fn status(&self) -> NodeTaskStatus {
        self.task.status.clone().unwrap_or_default()
    }

    pub(super) fn state(&self) -> Option<TaskState> {
        self.status().state
    }

    /// One leader after the other, for at most so many steps of two seconds, or until the task is finished.
    pub(super) fn run(&mut self, steps: usize) {
        let mut memory = Memory::default();
        for _ in 0..steps {
            if self.is_gone || self.status().is_final() && self.status().running.is_empty() {
                return;
            }
            self.now += SignedDuration::from_secs(2);
            if self.step(&mut memory).is_err() {
                memory = Memory::default();
            }
        }
    }

    /// One act. The leader may be killed after it.
    fn act(&mut self) -> Result<(), Killed> {
        self.acts += 1;
        if self.acts.is_multiple_of(self.kill_every) { Err(Killed) } else { Ok(()) }
    }

    /// As `run.rs` does it.
    pub(super) fn step_once(&mut self) {
        let _ = self.step(&mut Memory::default());
    }

    fn step(&mut self, memory: &mut Memory) -> Result<(), Killed> {
        let object = Arc::new(self.task.clone());
        let Ok(status) = memory.status(&object).map(|status| status.cloned()) else { return Ok(()) };
        let running = status.as_ref().map(|status| status.running.clone()).unwrap_or_default();
        let outcomes =
            running.iter().filter_map(|it| Some((it.node.clone(), memory.take_outcome(&StepKey::new("u", it))?)));
        let outcomes: BTreeMap<String, Outcome> = outcomes.collect();
        let is_deleted = object.metadata.deletion_timestamp.is_some();
        let left = if is_deleted { leftovers(&object, status.as_ref()) } else { running };
        let is_undone = left.iter().all(|running| memory.is_undone("u", &running.node));
        let views = self.nodes.clone();
        let nodes: NodesByName<'_> = views.iter().map(|view| (view.name.as_str(), view)).collect();
        let wall_clock = Ages::default();
        let world = World {
            nodes: &nodes,
            enabled: self.enabled,
            stopped: self.stopped,
            times: TaskClock { now: self.now, ages: self.ages.as_ref().unwrap_or(&wall_clock) },
            is_settled: true,
            busy: &HashMap::new(),
            has_slot: self.has_slot,
        };
        let planned =
            plan(&TaskInput { object: &object, status: status.as_ref(), outcomes: &outcomes, is_undone }, &world);
        self.carry_out(&object, planned, memory)?;
        self.call(&object, memory)
    }

    fn carry_out(&mut self, object: &NodeTask, planned: TaskPlan, memory: &mut Memory) -> Result<(), Killed> {
        self.is_gone |= planned.is_expired;
        if let Some(change) = planned.finalizer {
            let finalizers = (change == FinalizerChange::Add).then(|| vec![TASK_FINALIZER.to_owned()]);
            self.is_gone |= finalizers.is_none() && object.metadata.deletion_timestamp.is_some();
            self.task.metadata.finalizers = finalizers;
            self.note_version();
            self.act()?;
        }
        let Some(status) = planned.status else { return Ok(()) };
        // In the place of the version that was read.
        if memory.version(object) != self.task.metadata.resource_version {
            memory.note_conflict(object);
            return Ok(());
        }
        let bytes = serde_json::to_string(&status).unwrap().len();
        assert!(bytes <= OBJECT_MAX, "{bytes} bytes");
        self.most = self.most.max(status.running.len());
        self.task.status = Some(status.clone());
        self.note_version();
        self.act()?;
        memory.note_written(object, status.clone(), self.task.metadata.resource_version.clone());
        for running in status.running.iter().filter(|running| planned.begun.contains(&running.node)) {
            memory.note_begun(StepKey::new("u", running));
        }
        Ok(())
    }

    fn note_version(&mut self) {
        self.version += 1;
        self.task.metadata.resource_version = Some(self.version.to_string());
    }

    fn call(&mut self, object: &NodeTask, memory: &mut Memory) -> Result<(), Killed> {
        let Ok(status) = memory.status(object).map(|status| status.cloned()) else { return Ok(()) };
        let is_deleted = object.metadata.deletion_timestamp.is_some();
        let is_over = is_deleted || status.as_ref().is_some_and(NodeTaskStatus::is_final);
        let left = if is_deleted { leftovers(object, status.as_ref()) } else { status.unwrap_or_default().running };
        for running in left {
            let key = StepKey::new("u", &running);
            if is_over || running.step == ENDING {
                self.pods.remove(&running.node);
                memory.note_outcome(key, Outcome::Undone(Ok(true)));
            } else if running.step == STARTED && self.stopped.is_some() {
                continue;
            } else if running.step != STARTED && memory.is_due(&key) {
                self.create_pod(&running.node);
                memory.note_applied(key, true);
            } else {
                memory.note_outcome(key, Outcome::Next(self.advance(&running)));
            }
            self.act()?;
        }
        Ok(())
    }

    /// A Pod has a fixed name: a repeated creation finds it.
    fn create_pod(&mut self, node: &str) {
        if self.pods.insert(node.to_owned()) {
            *self.created.entry(node.to_owned()).or_default() += 1;
            self.order.push(node.to_owned());
        }
    }

    fn advance(&self, running: &RunningNode) -> Next {
        match running.step.as_str() {
            STARTED => Next::Go(RunningNode { step: OPERATING.to_owned(), ..running.clone() }),
            _ if !self.pods.contains(&running.node) => Next::Wait("its Pod is being created".to_owned()),
            _ if self.hanging.contains(&running.node) => Next::Wait("its Pod runs".to_owned()),
            _ if self.failing.contains(&running.node) => Next::Failed(TaskReason::NotGrown, "no free space".to_owned()),
            _ => Next::Succeeded(String::new()),
        }
    }

    pub(super) fn delete(&mut self) {
        self.task.metadata.deletion_timestamp = Some(Time(self.now));
        self.note_version();
    }

    pub(super) fn write_status(&mut self, status: Value) {
        self.task.status = Some(serde_json::from_value(status).unwrap());
        self.note_version();
    }
}
