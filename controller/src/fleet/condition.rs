//! Our conditions of Nodes, as they are written.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::cluster::node_condition::NodeCondition;

/// A condition to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewCondition {
    pub condition: NodeCondition,
    pub message: String,
}

/// The body of a strategic merge patch of a Node's status. It touches no condition of another type. The API server refuses it
/// as a conflict if the Node has another version.
pub(crate) fn patch(version: Option<&str>, conditions: &[NewCondition], now: Timestamp) -> Value {
    let conditions = conditions.iter().map(|NewCondition { condition, message }| {
        json!({
            "type": condition.area.condition(),
            "status": condition.status.as_str(),
            "reason": condition.reason,
            "message": message,
            "lastTransitionTime": seconds(condition.since.unwrap_or(now)),
            "lastHeartbeatTime": seconds(now),
        })
    });
    json!({
        "metadata": { "resourceVersion": version },
        "status": { "conditions": conditions.collect::<Vec<_>>() },
    })
}

/// Kubernetes' times have no fractions.
fn seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}
