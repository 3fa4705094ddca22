//! What the actions of NodeTasks share: what they need, what they see of a node, and what they answer.

use std::sync::Arc;

use api::node_task::{RunningNode, TaskVerb};
use api::{NodeTask, TaskReason};
use channel::Client as ChannelClient;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use oci::Oci;

use super::ages::Ages;
use super::reboot_state::Reboots;
use crate::cluster::events::Events;
use crate::cluster::store::{NodeView, Store};
use crate::fleet::roster::AgentView;
use crate::fleet::shared::SharedRoster;
use crate::operations::PolicyGrowths;
use crate::report::metrics::Metrics;

/// The step of a node on which nothing was done yet.
pub(crate) const STARTED: &str = "Started";
/// The step of a node that has its result: what the action left on it is being removed.
pub(crate) const ENDING: &str = "Ending";

/// What the actions need.
#[derive(Clone)]
pub(crate) struct TaskContext {
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
    /// What this leader knows about reboots.
    pub reboots: Arc<Reboots>,
    /// How long ago times of statuses were.
    pub ages: Arc<Ages>,
    /// The tasks that NodePolicies requested, for the policies' rollouts.
    pub growths: Arc<PolicyGrowths>,
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
    /// Whether this leader applied the step.
    pub is_applied: bool,
    /// Other tasks that reboot nodes.
    pub reboots: Vec<OtherReboot>,
}

/// A node that another task reboots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OtherReboot {
    pub uid: String,
    pub node: String,
    pub step: String,
}

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
