//! The NodeTasks as the watch has them, and the writes of their objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{CREATED_BY_ANNOTATION, NodeTask, NodeTaskStatus, Received, TASK_FINALIZER, UnreadableObject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Resource as _, ResourceExt as _};
use resident::logging::chain;
use serde_json::json;

use super::action::TaskContext;
use super::memory::Memory;
use super::plan::FinalizerChange;
use crate::cluster::creator::created_by;
use crate::cluster::object_writes::{write_finalizer, write_status};
use crate::cluster::request::send;
use crate::cluster::store::StoreUpdate;

/// The most finished tasks.
pub(crate) const FINISHED_MAX: usize = 1000;

/// What is kept of a task: not what users may attach to it without bound. Its creator stays.
pub(crate) fn bounded(mut object: Received<NodeTask>) -> Received<NodeTask> {
    let metadata = object.meta_mut();
    let creator = created_by(metadata);
    let whole = std::mem::take(metadata);
    *metadata = ObjectMeta {
        name: whole.name,
        uid: whole.uid,
        resource_version: whole.resource_version,
        creation_timestamp: whole.creation_timestamp,
        deletion_timestamp: whole.deletion_timestamp,
        finalizers: whole.finalizers,
        annotations: (!creator.is_empty()).then(|| [(CREATED_BY_ANNOTATION.to_owned(), creator)].into()),
        ..ObjectMeta::default()
    };
    object
}

/// What is known of a task whose action a later version wrote: its status says what it may have left on which nodes.
fn salvage(unreadable: UnreadableObject) -> Option<NodeTask> {
    let parts = json!({ "metadata": unreadable.metadata, "spec": { "action": {} }, "status": unreadable.status });
    serde_json::from_value(parts).ok()
}

/// All tasks, by name.
#[derive(Debug, Default)]
pub(crate) struct TaskObjects(BTreeMap<String, Arc<NodeTask>>);

impl TaskObjects {
    pub(crate) fn take(&mut self, news: StoreUpdate<Received<NodeTask>>) {
        match news {
            StoreUpdate::All(all) => {
                self.0.clear();
                all.into_iter().for_each(|object| self.apply(object));
            }
            StoreUpdate::One(object) => self.apply(object),
            StoreUpdate::Gone(name) => drop(self.0.remove(&name)),
        }
    }

    fn apply(&mut self, object: Received<NodeTask>) {
        let name = object.name_any();
        match object.0 {
            Ok(object) => drop(self.0.insert(name, Arc::new(object))),
            Err(unreadable) => {
                tracing::warn!(event = "node_task.unreadable", name, error = unreadable.error, "the task does not run");
                match salvage(unreadable) {
                    Some(object) => drop(self.0.insert(name, Arc::new(object))),
                    None => drop(self.0.remove(&name)),
                }
            }
        }
    }

    /// All of them, the oldest first.
    pub(crate) fn by_age(&self) -> Vec<Arc<NodeTask>> {
        let mut all: Vec<Arc<NodeTask>> = self.0.values().cloned().collect();
        all.sort_by_key(|task| task.creation_timestamp().map(|time| time.0));
        all
    }
}

impl TaskContext {
    /// Whether the status is written.
    pub(super) async fn write_task_status(
        &self,
        object: &NodeTask,
        status: &NodeTaskStatus,
        memory: &mut Memory,
    ) -> bool {
        let version = memory.version(object);
        let written = write_status(&self.client, object, status, version.as_deref()).await;
        self.metrics.wrote("node_task_status", written.is_ok());
        match written {
            Ok(version) => {
                memory.note_written(object, status.clone(), version);
                true
            }
            Err(error) => {
                if error.is_conflict() {
                    memory.note_conflict(object);
                } else {
                    let name = object.name_any();
                    tracing::warn!(event = "node_task.status", name, error = chain(&error), "retried");
                }
                false
            }
        }
    }

    pub(super) async fn write_task_finalizer(&self, object: &NodeTask, change: FinalizerChange) {
        let is_removed = change == FinalizerChange::Remove;
        let written = write_finalizer(&self.client, object, TASK_FINALIZER, is_removed).await;
        self.metrics.wrote("node_task_finalizer", written.is_ok());
        if let Err(error) = written {
            tracing::warn!(event = "node_task.finalizer", name = object.name_any(), error = chain(&error), "retried");
        }
    }

    /// Deletes a task whose time is over.
    pub(super) async fn delete_task(&self, object: &NodeTask) {
        let api: Api<Received<NodeTask>> = Api::all(self.client.clone());
        let preconditions = Preconditions { uid: object.uid(), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
        let result = send(api.delete(&object.name_any(), &params)).await;
        self.metrics.wrote("node_task_delete", result.is_ok());
        if let Err(error) = result {
            tracing::warn!(event = "node_task.delete", name = object.name_any(), error = chain(&error), "retried");
        }
    }
}
