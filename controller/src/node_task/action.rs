//! What the engine calls of an action, for each node on which it runs. Each action is a module with the same four functions.

use std::sync::Arc;
use std::time::Duration;

use api::node_task::{RunningNode, TaskVerb};
use api::{NodeTask, TaskReason};
use channel::Client as ChannelClient;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use oci::Oci;
use tokio::time::timeout;

use crate::cluster::events::Events;
use crate::cluster::store::{NodeView, Store};
use crate::fleet::roster::AgentView;
use crate::fleet::shared::SharedRoster;
use crate::report::metrics::Metrics;

/// The step of a node on which nothing was done yet.
pub(crate) const STARTED: &str = "Started";
/// The step of a node that has its result: what the action left on it is being removed.
pub(crate) const ENDING: &str = "Ending";
/// The deadline of one call. Longer work is a step that is observed.
const LIMIT: Duration = Duration::from_secs(45);

/// What the actions need.
#[derive(Clone)]
pub(crate) struct TaskContext {
    /// The API server.
    pub client: Client,
    pub channel: ChannelClient,
    pub cloud: Oci,
    pub store: Arc<Store>,
    pub roster: Arc<SharedRoster>,
    pub events: Events,
    pub metrics: Arc<Metrics>,
    /// The namespace of the controller, and the name of its Pod.
    pub namespace: String,
    pub identity: String,
    /// Which actions are enabled.
    pub enabled: EnabledActions,
}

/// Which actions the cluster's operators enabled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EnabledActions {
    pub is_any: bool,
    pub is_reboot: bool,
}

/// A node of a task, as it is now.
#[derive(Clone, Debug)]
pub(crate) struct StepInput {
    pub task: Arc<NodeTask>,
    /// Its entry in the status: what is written there is what the next leader knows.
    pub running: RunningNode,
    /// The Node, if it exists.
    pub view: Option<Arc<NodeView>>,
    pub agent: AgentView,
    pub now: Timestamp,
    /// Whether the stop switch is on. Then no step may begin that has an effect which was not announced.
    pub is_stopped: bool,
}

/// What follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing; it waits for this.
    Wait(String),
    /// Another step: it is written, and then applied. The engine sets its times.
    Go(RunningNode),
    /// The node is done.
    Succeeded(String),
    Failed(TaskReason, String),
    /// Nothing was done on it.
    Skipped(TaskReason, String),
}

impl EnabledActions {
    /// Whether this one is enabled.
    pub(crate) const fn has(self, verb: TaskVerb) -> bool {
        self.is_any && (self.is_reboot || !matches!(verb, TaskVerb::Reboot))
    }
}

impl StepInput {
    pub(crate) fn verb(&self) -> Option<TaskVerb> {
        self.task.spec.action.verb()
    }
}

/// Observes a node, and decides what follows; `None` if nothing was learned in time.
pub(crate) async fn advance(context: &TaskContext, input: &StepInput) -> Option<Next> {
    let is_started = input.running.step == STARTED;
    if is_started && let Some(version) = input.agent.version_without_tasks() {
        return Some(Next::Skipped(TaskReason::Unsupported, format!("its agent is of version {version}")));
    }
    let deciding = async {
        // Each action lands with its arm.
        let _ = context;
        Next::Failed(TaskReason::Unsupported, "this version of the controller lacks the action".to_owned())
    };
    timeout(LIMIT, deciding).await.ok()
}

/// Carries out the step that is written. A new leader, and each retry, repeats it.
///
/// # Errors
/// When it may not have had its effect.
pub(crate) async fn apply(context: &TaskContext, input: &StepInput) -> Result<(), String> {
    let applying = async {
        let _ = (context, input);
        Ok(())
    };
    timeout(LIMIT, applying).await.unwrap_or_else(|_| Err(format!("no answer within {LIMIT:?}")))
}

/// Removes what the action left on a node. Returns whether nothing is left.
///
/// # Errors
/// When it could not find out.
pub(crate) async fn undo(context: &TaskContext, input: &StepInput) -> Result<bool, String> {
    let undoing = async {
        let _ = (context, input);
        Ok(true)
    };
    timeout(LIMIT, undoing).await.unwrap_or_else(|_| Err(format!("no answer within {LIMIT:?}")))
}
