//! The objects that facts are found in, as the API server delivered them. What could not be read is absent, and its reason is in
//! `unread`: nothing is concluded from it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::NetworkPolicy;

use crate::ends::ObjectName;

/// The objects that were read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects {
    /// The source, if it is a Pod.
    pub source: Option<Pod>,
    pub node: Option<Node>,
    /// The target, if it is a Service.
    pub service: Option<Service>,
    /// The target, if it is a Pod.
    pub target: Option<Pod>,
    pub slices: Option<Vec<EndpointSlice>>,
    /// Pods that the Service's selector selects; none without a selector.
    pub selected: Option<Vec<Pod>>,
    /// In the namespaces of source and target.
    pub policies: Vec<NetworkPolicy>,
    /// The labels of namespaces, as far as they could be read.
    pub namespaces: BTreeMap<String, BTreeMap<String, String>>,
    /// The cluster's DNS, and the Pods behind it.
    pub dns: Option<Service>,
    pub dns_pods: Vec<Pod>,
    /// Kinds of network policies that other programs interpret, with the number of their objects if it is known.
    pub other_policies: Vec<OtherPolicies>,
    /// What could not be read, and why.
    pub unread: Vec<String>,
}

/// Network policies of a kind that is not judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OtherPolicies {
    /// Such as `CiliumNetworkPolicy (cilium.io)`.
    pub kind: String,
    /// Whether there is an object of it; not known if absent.
    pub has_objects: Option<bool>,
}

/// The name of a Pod.
pub(crate) fn name_of(pod: &Pod) -> ObjectName {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    ObjectName { namespace: text(&pod.metadata.namespace), name: text(&pod.metadata.name) }
}

/// Whether the Pod has its node's network: policies do not select it.
pub(crate) fn is_in_host_network(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true))
}

/// The Node that a Pod runs on.
pub(crate) fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// Why a Pod is not ready, in the words of its status; `None` if it is.
pub(crate) fn why_not_ready(pod: &Pod) -> Option<String> {
    if pod.metadata.deletion_timestamp.is_some() {
        return Some("it is being deleted".to_owned());
    }
    let status = pod.status.clone().unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let condition = |kind: &str| conditions.iter().find(|one| one.type_ == kind);
    if condition("Ready").is_some_and(|ready| ready.status == "True") {
        return None;
    }
    let containers = status.container_statuses.unwrap_or_default();
    let mut all = status.init_container_statuses.unwrap_or_default();
    all.extend(containers);
    let waiting = |container: &k8s_openapi::api::core::v1::ContainerStatus| {
        let state = container.state.as_ref()?;
        let reason = state.waiting.as_ref().map(|waiting| waiting.reason.clone());
        let reason = reason.or_else(|| state.terminated.as_ref().map(|ended| ended.reason.clone()))??;
        Some(format!("container {}: {reason}", container.name))
    };
    // A container that ended well, such as an init container, is not a reason.
    let is_cause = |reason: &String| !reason.ends_with(": Completed") && !reason.ends_with(": PodInitializing");
    if let Some(reason) = all.iter().filter_map(waiting).find(is_cause) {
        return Some(reason);
    }
    if let Some(unscheduled) = condition("PodScheduled").filter(|one| one.status != "True") {
        return Some(format!("not scheduled: {}", unscheduled.message.clone().unwrap_or_default()));
    }
    let failing = all.iter().find(|container| !container.ready).map(|container| container.name.clone());
    let phase = status.phase.unwrap_or_else(|| "Unknown".to_owned());
    Some(match failing {
        Some(name) if phase == "Running" => format!("container {name}: its readiness probe has not passed"),
        _ => match condition("Ready").and_then(|ready| ready.reason.clone()) {
            Some(reason) => format!("{phase}: {reason}"),
            None => phase,
        },
    })
}
