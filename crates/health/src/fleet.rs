//! All nodes, as the controller serves them and `kubectl oke-node` shows them.

use serde::{Deserialize, Serialize};
use vcn::words;

use crate::summary::Summary;
use crate::summary::check::Check;
use crate::verdict::{Severity, Verdict};

pub use crate::controller_signals::{
    CLOUD_AGENT_PLUGINS, HOST_FAULT, MAINTENANCE_SCHEDULED, OKE_REPAIR, controller_signal_healthy,
};

/// The subject of the controller's check of a VnicAttachment begins like this.
pub const VNIC_ATTACHMENT: &str = "VnicAttachment ";

/// The controller's check of a node whose kubelet is not ready.
pub const NODE_NOT_READY: &str = "NodeNotReady";

/// The controller's check of a cluster without the ServiceAccount of the agents.
pub const AGENT_ACCOUNT_MISSING: &str = "AgentAccountMissing";

/// What the kubelet reports where the runtime has no pod network.
const NO_POD_NETWORK: &str = "NetworkPluginNotReady";

/// What else it reports in the same message (pkg/kubelet/runtime.go and nodeshutdown).
const OTHER_KUBELET_PROBLEMS: [&str; 5] = [
    "container runtime is down",
    "container runtime not ready",
    "container runtime status check",
    "PLEG is not healthy",
    "node is shutting down",
];

/// Whether a kubelet that is not ready lacks only the pod network, as on a new node: kubelet and runtime work.
pub fn lacks_pod_network_only(message: &str) -> bool {
    message.contains(NO_POD_NETWORK) && !OTHER_KUBELET_PROBLEMS.iter().any(|problem| message.contains(problem))
}

/// All nodes at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Fleet {
    /// The version of the controller.
    pub controller: String,
    /// The name of the leader's Pod.
    pub leader: String,
    /// Seconds since this leader began to poll agents.
    pub leader_seconds: u64,
    /// The nodes, in the order of their names.
    pub nodes: Vec<FleetNode>,
}

/// A node as the leader knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FleetNode {
    /// The name of the Node object.
    pub name: String,
    /// The OCID of its instance, from the Node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// The worst of what is known of it.
    pub state: NodeState,
    /// Seconds since its agent last answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<u64>,
    /// Why its agent did not answer the last request, or was not queried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The last summary that its agent answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
    /// What the controller itself found: a kubelet that is not ready, VnicAttachments that are not, and requests of the node that
    /// cannot be met.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Check>,
}

impl FleetNode {
    /// All that is not healthy, the worst first.
    pub fn checks(&self) -> Vec<&Check> {
        let mut all: Vec<&Check> =
            self.summary.iter().flat_map(|summary| &summary.checks).chain(&self.findings).collect();
        all.sort_by(|a, b| a.rank().cmp(&b.rank()));
        all
    }
}

/// A node with what its agent answers now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeDetails {
    /// As in the fleet.
    pub node: FleetNode,
    /// The agent's answer, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<serde_json::Value>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A node in a word, the worst first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum NodeState {
    /// At least one critical problem.
    Critical,
    /// At least one problem.
    Warning,
    /// Its agent does not answer, has not answered yet, or has just started.
    #[default]
    Unknown,
    /// No check has a problem.
    Healthy,
}

impl NodeState {
    /// By an answer that is not too old.
    pub fn of(summary: &Summary) -> Self {
        let is_starting = if summary.ready { Self::Healthy } else { Self::Unknown };
        Self::of_checks(&summary.checks).min(is_starting)
    }

    /// The state that follows from checks alone, for an agent that answers.
    pub fn of_checks<'a>(checks: impl IntoIterator<Item = &'a Check>) -> Self {
        let problems = checks.into_iter().filter(|check| check.verdict == Verdict::Problem);
        match problems.map(|check| check.severity).max() {
            Some(Severity::Critical) => Self::Critical,
            Some(Severity::Warning) => Self::Warning,
            None => Self::Healthy,
        }
    }
}

words!(NodeState: Critical, Warning, Unknown, Healthy);
