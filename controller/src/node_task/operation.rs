//! Operations on a node that need root: a Pod on the node carries each out, and reports (daemon/src/operation). Captures use one for
//! logs. Created once per task and node; what it may be is fixed by manifests/operations/operation-pods.yaml.
//!
//! ```text
//!   Started ─▶ Creating ─▶ Running ─▶ result         growth: Running ─▶ Proving, until the Node shows it
//!              the Pod is    its container
//!              created       started
//! ```

mod plan;
mod template;

use std::time::Duration;

use api::Received;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use resident::logging::chain;
use tokio::time::Instant;

use super::action::{Next, StepInput, TaskContext};
use crate::cluster::own_image::own_image;
use crate::cluster::request::{RequestError, send};
use crate::operations::{PodState, create_pod, delete_pod, pods};
use plan::Facts;
use template::{Operation, PodOwner};

pub(super) use plan::{CREATING, RUNNING};

/// Observes a node, and decides what follows; `None` if its Pod cannot be read.
pub(crate) async fn advance(context: &TaskContext, input: &StepInput) -> Option<Next> {
    let operation = Operation::of(&input.task.spec.action)?;
    let pod = match read(context, input).await {
        Ok(pod) => pod,
        Err(error) => {
            tracing::warn!(event = "operation_pod.read", name = name(input), error, "retried");
            return None;
        }
    };
    let created = pod.as_ref().and_then(|Received(pod)| pod.as_ref().ok()?.metadata.creation_timestamp.clone());
    let facts = Facts {
        pod_watched: created.map(|created| watched(context, &created, input)).unwrap_or_default(),
        pod: state(pod, &input.running.node),
        capacity: input.view.as_ref().and_then(|view| view.ephemeral_storage),
        age: age(context, input),
        watched: input.running.since.as_ref().map(|since| watched(context, since, input)).unwrap_or_default(),
    };
    Some(plan::next(operation, &input.running, &facts))
}

/// Creates the Pod, in the step Creating.
///
/// # Errors
/// When the API server refused: during an update of the controller, its image differs from the image of its Deployment.
pub(crate) async fn apply(context: &TaskContext, input: &StepInput) -> Result<(), String> {
    let Some(operation) = Operation::of(&input.task.spec.action).filter(|_| input.running.step == CREATING) else {
        return Ok(());
    };
    let image = own_image(&context.client, &context.namespace, &context.identity).await?;
    let uid = input.task.metadata.uid.clone().unwrap_or_default();
    let task = input.task.metadata.name.clone().unwrap_or_default();
    let owner = PodOwner { task: &task, uid: &uid, node: &input.running.node };
    let pod = template::pod(&owner, operation, &image).map_err(|error| error.to_string())?;
    let created = create_pod(&context.client, &pod).await;
    context.metrics.wrote("operation_pod", created.is_ok());
    created.map_err(|error| format!("create its Pod: {}", chain(&error)))
}

/// Deletes the Pod. The Pod of a deleted task ends first: a growth must not stop halfway, or run next to another operation.
///
/// # Errors
/// When the API server refused.
pub(crate) async fn undo(context: &TaskContext, input: &StepInput) -> Result<bool, String> {
    let operation = Operation::of(&input.task.spec.action).unwrap_or(Operation::GrowRootDisk);
    let pod = match read(context, input).await {
        Ok(None) => return Ok(true),
        Ok(Some(pod)) => pod,
        Err(error) => return Err(format!("read its Pod: {error}")),
    };
    // Also when the task's deadline passed.
    let is_working = state(Some(pod), &input.running.node) == PodState::Running;
    if is_working && !operation.is_interruptible() && age(context, input) < operation.limit() {
        return Ok(false);
    }
    let deleted = delete_pod(&context.client, &name(input)).await;
    context.metrics.wrote("operation_pod_delete", deleted.is_ok());
    deleted.map_err(|error| format!("delete its Pod: {}", chain(&error)))
}

/// Whether there is no Pod; `None` if that cannot be read.
pub(super) async fn is_gone(context: &TaskContext, input: &StepInput) -> Option<bool> {
    read(context, input).await.ok().map(|pod| pod.is_none())
}

async fn read(context: &TaskContext, input: &StepInput) -> Result<Option<Received<Pod>>, String> {
    match send(pods(&context.client).get(&name(input))).await {
        Ok(pod) => Ok(Some(pod)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(chain(&error)),
    }
}

fn is_absent(error: &RequestError) -> bool {
    error.code() == Some(404)
}

fn state(pod: Option<Received<Pod>>, node: &str) -> PodState {
    match pod {
        None => PodState::Absent,
        Some(Received(Ok(pod))) => PodState::of(&pod, node),
        Some(Received(Err(unreadable))) => PodState::Invalid(format!("its Pod is unreadable: {}", unreadable.error)),
    }
}

fn name(input: &StepInput) -> String {
    let uid = input.task.metadata.uid.as_deref().unwrap_or_default();
    PodOwner { task: "", uid, node: &input.running.node }.pod_name()
}

/// How long ago the step began.
fn age(context: &TaskContext, input: &StepInput) -> Duration {
    input.running.since.as_ref().map(|since| elapsed(context, since, input)).unwrap_or_default()
}

/// For how long this leader has known what began then: by its own clock, whatever the API server's clock shows.
fn watched(context: &TaskContext, since: &Time, input: &StepInput) -> Duration {
    let uid = input.task.metadata.uid.as_deref().unwrap_or_default();
    context.ages.watched(uid, since, input.now, Instant::now())
}

fn elapsed(context: &TaskContext, since: &Time, input: &StepInput) -> Duration {
    let uid = input.task.metadata.uid.as_deref().unwrap_or_default();
    context.ages.of(uid, since, input.now, Instant::now())
}
