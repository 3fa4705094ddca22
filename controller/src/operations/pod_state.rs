//! What a Pod of an operation shows. Its status is written by the kubelet of the node: it is untrusted.

use api::operation::OperationReport;
use k8s_openapi::api::core::v1::{ContainerState, Pod};

use super::template::CONTAINER;

/// How far the Pod is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PodState {
    /// No Pod has the name of the operation.
    Absent,
    /// Its container did not start, for this reason.
    Waiting(String),
    /// Its image cannot be pulled yet.
    Pulling(String),
    Running,
    /// It ended before its container started.
    NeverRan(String),
    Ended(OperationReport),
    /// It ended without a report.
    Invalid(String),
}

impl PodState {
    /// That of a Pod for this node.
    pub(crate) fn of(pod: &Pod, node: &str) -> Self {
        let spec_node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        if spec_node != Some(node) {
            return Self::Invalid("the Pod with its name is for another node".to_owned());
        }
        let status = pod.status.clone().unwrap_or_default();
        let containers = status.container_statuses.unwrap_or_default();
        let state = containers.into_iter().find(|it| it.name == CONTAINER).and_then(|it| it.state);
        let ContainerState { running, terminated, waiting } = state.unwrap_or_default();
        if let Some(ended) = terminated {
            let cause = ended.reason.unwrap_or_default();
            return match ended.message {
                Some(text) if !text.is_empty() => OperationReport::read(&text).map_or_else(Self::Invalid, Self::Ended),
                // The runtime did not start it.
                _ if ended.exit_code == 128 => Self::NeverRan(cause),
                _ => Self::Invalid(format!("the Pod ended without a report: {cause} {}", ended.exit_code)),
            };
        }
        if running.is_some() {
            return Self::Running;
        }
        if matches!(status.phase.as_deref(), Some("Failed" | "Succeeded")) {
            let texts = [status.reason, status.message].map(Option::unwrap_or_default);
            return Self::NeverRan(texts.join(" ").trim().to_owned());
        }
        match waiting.and_then(|waiting| waiting.reason) {
            Some(reason) if reason.contains("Image") => Self::Pulling(reason),
            Some(reason) => Self::Waiting(reason),
            None => Self::Waiting("the kubelet has not reported its state yet".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use api::TaskReason;
    use serde_json::{Value, json};

    use super::*;

    fn state(status: &Value) -> PodState {
        let pod = json!({ "metadata": {}, "spec": { "nodeName": "node-a", "containers": [] }, "status": status });
        PodState::of(&serde_json::from_value(pod).unwrap(), "node-a")
    }

    fn container(state: &Value) -> PodState {
        let container = json!({ "name": "operation", "ready": false, "restartCount": 0, "image": "", "imageID": "", "state": state });
        state_of_phase("Pending", &container)
    }

    fn state_of_phase(phase: &str, container: &Value) -> PodState {
        state(&json!({ "phase": phase, "containerStatuses": [container] }))
    }

    #[test]
    fn status_becomes_a_state() {
        let report = OperationReport::new(TaskReason::Succeeded, "crio.service is active");
        let terminated = json!({ "terminated": { "exitCode": 0, "message": report.to_text() } });
        assert_eq!(container(&terminated), PodState::Ended(report));
        assert_eq!(container(&json!({ "running": {} })), PodState::Running);
        let creating = json!({ "waiting": { "reason": "ContainerCreating" } });
        assert_eq!(container(&creating), PodState::Waiting("ContainerCreating".to_owned()));
        let pull = json!({ "waiting": { "reason": "ImagePullBackOff" } });
        assert_eq!(container(&pull), PodState::Pulling("ImagePullBackOff".to_owned()));
        assert_eq!(state(&json!({})), PodState::Waiting("the kubelet has not reported its state yet".to_owned()));
        let full =
            json!({ "phase": "Failed", "reason": "OutOfpods", "message": "Node didn't have enough resource: pods" });
        assert_eq!(state(&full), PodState::NeverRan("OutOfpods Node didn't have enough resource: pods".to_owned()));
        let unstarted = json!({ "terminated": { "exitCode": 128, "reason": "StartError" } });
        assert_eq!(container(&unstarted), PodState::NeverRan("StartError".to_owned()));
    }

    #[test]
    fn foreign_and_damaged_reports_are_invalid() {
        for message in [json!(null), json!("{}"), json!("{\"version\":1,\"reason\":\"Replaced\"}")] {
            let terminated = json!({ "terminated": { "exitCode": 0, "message": message } });
            assert!(matches!(container(&terminated), PodState::Invalid(_)), "{message}");
        }
        let other = json!({ "metadata": {}, "spec": { "nodeName": "node-b", "containers": [] }, "status": {} });
        assert!(matches!(PodState::of(&serde_json::from_value(other).unwrap(), "node-a"), PodState::Invalid(_)));
    }
}
