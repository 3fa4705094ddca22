//! Which nodes and which of the few slots tasks take.

use std::collections::HashSet;

use api::{NodeTask, NodeTaskStatus};
use kube::ResourceExt as _;

use super::action::STARTED;
use super::plan::BusyNodes;

/// Tasks that run at once; the others are queued.
const TASKS_MAX: usize = 16;

/// The nodes on which tasks run, and the tasks that had an effect.
#[derive(Default)]
pub(super) struct Occupancy {
    pub(super) nodes: BusyNodes,
    tasks: HashSet<String>,
}

impl Occupancy {
    /// Notes what a task occupies. Captures change nothing on a node.
    pub(super) fn note(&mut self, object: &NodeTask, status: Option<&NodeTaskStatus>) {
        let running = status.map(|status| status.running.as_slice()).unwrap_or_default();
        let uid = object.uid().unwrap_or_default();
        if running.iter().any(|running| running.step != STARTED) {
            self.tasks.insert(uid.clone());
        }
        for running in running.iter().filter(|_| object.spec.action.capture.is_none()) {
            let tasks = self.nodes.entry(running.node.clone()).or_default();
            if tasks.iter().all(|(known, _)| *known != uid) {
                tasks.push((uid.clone(), object.name_any()));
            }
        }
    }

    /// Whether a further task may run, or this one does.
    pub(super) fn has_slot(&self, uid: &str) -> bool {
        self.tasks.len() < TASKS_MAX || self.tasks.contains(uid)
    }
}
