//! Conditions of Nodes as they are stored: our conditions, and the kubelet's.

use api::{ConditionStatus, lenient};
use health::Area;
use health::fleet::lacks_pod_network_only;
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;

/// The condition that the kubelet writes, and the API server once it stopped.
const KUBELET: &str = "Ready";

/// The longest kept text of that condition, in characters. Kubelets write some hundred.
const TEXT_MAX: usize = 1024;

/// One of our conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeCondition {
    /// What it is about.
    pub area: Area,
    /// Whether the node is fine.
    pub status: ConditionStatus,
    /// The worst check's name, or a word of [`crate::fleet::judge`].
    pub reason: String,
    /// When the status last changed.
    pub since: Option<Timestamp>,
}

/// A condition of a Node as received.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StoredCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: Option<String>,
    message: Option<String>,
    // The API server takes times that this type does not.
    #[serde(deserialize_with = "lenient")]
    last_transition_time: Option<Timestamp>,
}

/// Why a node's kubelet is not ready: it is down or cut off, or its runtime or its pod network is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeletProblem {
    /// Of the condition Ready.
    pub reason: String,
    /// The message of the condition, for people.
    pub message: String,
    /// The time of the last transition.
    pub since: Option<Timestamp>,
}

impl NodeCondition {
    /// A condition of our types; those of other programs are not kept.
    pub(crate) fn read(stored: StoredCondition) -> Option<Self> {
        let area = Area::ALL.into_iter().find(|area| area.condition() == stored.kind)?;
        let status = match stored.status.as_str() {
            "True" => ConditionStatus::True,
            "False" => ConditionStatus::False,
            _ => ConditionStatus::Unknown,
        };
        let reason = stored.reason.unwrap_or_default();
        Some(Self { area, status, reason, since: stored.last_transition_time })
    }
}

impl KubeletProblem {
    /// Of the conditions of a Node; one without the kubelet's condition is not known to have a problem.
    pub(crate) fn of(conditions: &[StoredCondition]) -> Option<Self> {
        let ready = conditions.iter().find(|condition| condition.kind == KUBELET && condition.status != "True")?;
        Some(Self {
            reason: kept(ready.reason.as_deref()),
            message: kept(ready.message.as_deref()),
            since: ready.last_transition_time,
        })
    }

    /// Whether only the pod network is missing, as on a new node: kubelet and runtime work.
    pub(crate) fn is_of_pod_network(&self) -> bool {
        lacks_pod_network_only(&self.message)
    }
}

/// A text of a kubelet, which may write any.
fn kept(text: Option<&str>) -> String {
    vcn::excerpt(text.unwrap_or_default(), TEXT_MAX).into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problem(message: &str) -> KubeletProblem {
        let ready = json!({ "type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": message });
        KubeletProblem::of(&[serde_json::from_value(ready).unwrap()]).unwrap()
    }

    #[test]
    fn runtime_that_is_down_is_no_missing_pod_network() {
        let network = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:x";
        for (message, expected) in [
            (network.to_owned(), true),
            (format!("[{network}, CSINode is not yet initialized]"), true),
            (format!("[container runtime is down, {network}]"), false),
            (format!("[PLEG is not healthy: pleg was last seen active 3m0s ago, {network}]"), false),
            ("Kubelet stopped posting node status.".to_owned(), false),
        ] {
            assert_eq!(problem(&message).is_of_pod_network(), expected, "{message}");
        }
    }

    #[test]
    fn text_of_a_kubelet_is_bounded() {
        assert_eq!(problem(&"ü".repeat(1 << 20)).message.chars().count(), TEXT_MAX + 1);
    }
}
