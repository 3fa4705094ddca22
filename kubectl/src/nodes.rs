//! Nodes as the API server shows them, in the form of the leader's view: what is known while no controller answers.

use api::GROUP;
use health::fleet::{FleetNode, NODE_NOT_READY, NodeState};
use health::rules::{Action, Severity};
use health::summary::{AcceleratorSources, Check, Summary};
use health::{Area, Verdict};
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use serde::Serialize;

/// The label with the shape, which OKE's cloud controller manager sets.
const SHAPE: &str = "node.kubernetes.io/instance-type";
/// The condition that the kubelet writes.
const KUBELET: &str = "Ready";

/// A condition of a Node: the kubelet's, or one of our controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    /// True is good; False, or Unknown.
    pub status: String,
    pub reason: String,
    pub message: String,
    /// Since when, in milliseconds since 1970.
    pub since_unix_millis: u64,
}

/// What runs on a node, as its kubelet reported it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Versions {
    /// The kubelet's version, such as `v1.34.1`.
    pub kubelet: String,
    /// With its name: `cri-o://1.34.0`.
    pub container_runtime: String,
    /// As in `uname -r`.
    pub kernel: String,
    /// The distribution's name and version.
    pub os: String,
}

/// What the kubelet of a Node reported once.
pub(crate) fn versions(node: &Node) -> Option<Versions> {
    let info = node.status.as_ref()?.node_info.clone()?;
    Some(Versions {
        kubelet: info.kubelet_version,
        container_runtime: info.container_runtime_version,
        kernel: info.kernel_version,
        os: info.os_image,
    })
}

/// The conditions of a Node that say how it is, the kubelet's first.
pub(crate) fn conditions(node: &Node) -> Vec<Condition> {
    let all = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut found: Vec<_> = all.filter(|one| one.type_ == KUBELET || is_ours(&one.type_)).map(condition).collect();
    found.sort_by(|a, b| (a.kind != KUBELET, &a.kind).cmp(&(b.kind != KUBELET, &b.kind)));
    found
}

/// The kubelet's condition of a Node, if it says that the node is not ready.
pub(crate) fn kubelet_problem(node: &Node) -> Option<Condition> {
    conditions(node).into_iter().find(|one| one.kind == KUBELET && one.status != "True")
}

/// A Node in the form of the leader's view.
pub(crate) fn entry(node: &Node) -> FleetNode {
    let conditions = conditions(node);
    let name = node.metadata.name.clone().unwrap_or_default();
    let provider = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).unwrap_or_default();
    let instance = api::instance_of(provider).ok().map(|ocid| ocid.to_string());
    let summary = Summary {
        node: name.clone(),
        instance: instance.clone(),
        shape: node.metadata.labels.as_ref().and_then(|labels| labels.get(SHAPE)).cloned(),
        ready: conditions.iter().any(|one| one.kind == KUBELET && one.status == "True"),
        accelerators: conditions
            .iter()
            .any(|one| one.kind == Area::Accelerators.condition())
            .then(AcceleratorSources::default),
        checks: conditions.iter().filter(|one| one.status != "True").map(check).collect(),
        ..Summary::default()
    };
    let state = match NodeState::of(&summary) {
        // The kubelet's word alone says nothing about the rest.
        NodeState::Healthy if !conditions.iter().any(|one| is_ours(&one.kind) && one.status == "True") => {
            NodeState::Unknown
        }
        state => state,
    };
    FleetNode { name, instance, state, summary: Some(summary), ..FleetNode::default() }
}

fn is_ours(kind: &str) -> bool {
    kind.strip_prefix(GROUP).is_some_and(|rest| rest.starts_with('/'))
}

fn condition(one: &NodeCondition) -> Condition {
    let since = one.last_transition_time.as_ref().map_or(0, |time| time.0.as_millisecond());
    Condition {
        kind: one.type_.clone(),
        status: one.status.clone(),
        reason: one.reason.clone().unwrap_or_default(),
        message: one.message.clone().unwrap_or_default(),
        since_unix_millis: u64::try_from(since).unwrap_or_default(),
    }
}

fn check(one: &Condition) -> Check {
    let message = if one.kind == KUBELET { format!("{}: {}", one.reason, one.message) } else { one.message.clone() };
    Check {
        name: match one.reason.as_str() {
            _ if one.kind == KUBELET => NODE_NOT_READY.to_owned(),
            "" => one.kind.clone(),
            reason => reason.to_owned(),
        },
        subject: None,
        area: Area::ALL.into_iter().find(|area| area.condition() == one.kind).unwrap_or(Area::Host),
        verdict: if one.status == "False" || one.kind == KUBELET { Verdict::Problem } else { Verdict::Unknown },
        // The controller writes False for critical problems only.
        severity: if one.status == "False" || one.kind == KUBELET { Severity::Critical } else { Severity::Warning },
        action: Action::Report,
        message,
        since_unix_millis: one.since_unix_millis,
        not_measured: None,
        devices: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(conditions: &serde_json::Value) -> Node {
        serde_json::from_value(serde_json::json!({
            "metadata": { "name": "10.0.0.2", "labels": { SHAPE: "BM.GPU.H100.8" } },
            "spec": { "providerID": "oci://ocid1.instance.oc1.iad.a" },
            "status": { "conditions": conditions },
        }))
        .unwrap()
    }

    fn state(conditions: &serde_json::Value) -> (NodeState, Vec<String>) {
        let entry = entry(&node(conditions));
        (entry.state, entry.summary.unwrap().checks.into_iter().map(|check| check.name).collect())
    }

    #[test]
    fn conditions_give_the_state_of_a_node() {
        let kubelet =
            |status: &str| serde_json::json!({ "type": "Ready", "status": status, "reason": "KubeletNotReady" });
        let ours = |status: &str| {
            serde_json::json!({ "type": "oke.oraclecloud.com/NetworkReady", "status": status, "reason": "LinkMissing",
                "lastTransitionTime": "1970-01-01T00:00:07Z" })
        };
        let none = Vec::<String>::new();
        assert_eq!(state(&serde_json::json!([kubelet("True")])), (NodeState::Unknown, none.clone()));
        assert_eq!(state(&serde_json::json!([kubelet("True"), ours("True")])), (NodeState::Healthy, none));
        let bad = serde_json::json!([ours("False"), kubelet("True"), { "type": "DiskPressure", "status": "False" }]);
        assert_eq!(state(&bad), (NodeState::Critical, vec!["LinkMissing".to_owned()]));
        assert_eq!(state(&serde_json::json!([kubelet("Unknown")])).0, NodeState::Critical);
        let entry = entry(&node(&bad));
        assert_eq!(entry.instance.as_deref(), Some("ocid1.instance.oc1.iad.a"));
        let summary = entry.summary.unwrap();
        assert_eq!((summary.checks[0].since_unix_millis, summary.ready), (7000, true));
        assert_eq!(summary.shape.as_deref(), Some("BM.GPU.H100.8"));
    }
}
