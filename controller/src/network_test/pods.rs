//! The Pods that a NetworkTest selects: listed once before a run, in the namespaces that let the controller list them.

use std::fmt;
use std::net::IpAddr;

use api::{NetworkTestSpec, PodSelection, Received, lenient_list};
use k8s_openapi::api::core::v1::{Pod, PodIP};
use kube::api::ListParams;
use kube::core::{ApiResource, Object, Selector};
use kube::{Api, Client, ResourceExt as _};
use nettest::probe::bounds;
use resident::logging::chain;
use serde::Deserialize;

use super::pair_error::PairError;
use crate::cluster::request::send;

/// The most pods of one selection.
const MAX_PODS: usize = 20;
/// The most Pods that are read for one selection, in the API server's order, which is that of their names.
const MAX_READ_PODS: u32 = 500;
const FORBIDDEN: u16 = 403;

/// A Pod as received: fields that are not named here are not even read.
type SelectedPod = Object<SelectedPodSpec, SelectedPodStatus>;

/// The fields that are read of a Pod's spec.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SelectedPodSpec {
    node_name: Option<String>,
    host_network: Option<bool>,
}

/// The fields that are read of a Pod's status.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct SelectedPodStatus {
    phase: Option<String>,
    #[serde(rename = "podIPs", deserialize_with = "lenient_list")]
    pod_ips: Vec<PodIP>,
}

/// A running pod with an address of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TestPod {
    pub namespace: String,
    pub name: String,
    pub node: String,
    /// Its addresses, of each family.
    pub addresses: Vec<IpAddr>,
}

/// Lists the Pods of each selection in a spec.
///
/// # Errors
/// When a namespace does not let the controller list them, a selector is not valid, or the API server does not answer.
pub(crate) async fn pods(
    client: &Client,
    spec: &NetworkTestSpec,
) -> Result<Vec<(PodSelection, Vec<TestPod>)>, PairError> {
    let mut found = Vec::new();
    let sources = spec.sources.iter().filter_map(|source| source.pods.as_ref());
    for selection in sources.chain(spec.targets.iter().filter_map(|target| target.pods.as_ref())) {
        found.push((selection.clone(), list(client, selection).await?));
    }
    Ok(found)
}

async fn list(client: &Client, selection: &PodSelection) -> Result<Vec<TestPod>, PairError> {
    let namespace = &selection.namespace;
    let selector = Selector::try_from(selection.selector.clone().unwrap_or_default())
        .map_err(|error| PairError::Selector(error.to_string()))?;
    let mut params = ListParams::default().labels_from(&selector).limit(MAX_READ_PODS);
    if let Some(name) = &selection.name {
        params = params.fields(&format!("metadata.name={name}"));
    }
    let kind = ApiResource::erase::<Pod>(&());
    let api: Api<Received<SelectedPod>> = Api::namespaced_with(client.clone(), namespace, &kind);
    match send(api.list(&params)).await {
        Ok(pods) => Ok(running(pods.items.into_iter().filter_map(|pod| pod.0.ok()))),
        Err(error) if error.code() == Some(FORBIDDEN) => Err(PairError::Pods(format!(
            "Pods of {namespace} may not be tested: kubectl -n {namespace} create rolebinding oke-network-test-pods \
             --clusterrole=oke-network-test-pods --serviceaccount=oke-node-manager:oke-node-controller"
        ))),
        Err(error) => Err(PairError::Pods(format!("list Pods of {namespace}: {}", chain(&error)))),
    }
}

/// The first running ones by name. Pods in the host's network have the node's address, and are left out.
fn running(pods: impl IntoIterator<Item = SelectedPod>) -> Vec<TestPod> {
    let mut found: Vec<TestPod> = pods.into_iter().filter_map(|pod| TestPod::of(&pod)).collect();
    found.sort();
    found.truncate(MAX_PODS);
    found
}

impl TestPod {
    fn of(pod: &SelectedPod) -> Option<Self> {
        let (spec, status) = (&pod.spec, pod.status.as_ref()?);
        let is_running = status.phase.as_deref() == Some("Running") && pod.metadata.deletion_timestamp.is_none();
        let addresses = status.pod_ips.iter().filter_map(|held| held.ip.parse().ok());
        // A kubelet writes the addresses, and must not lead probes to forbidden ones.
        let addresses: Vec<IpAddr> = addresses.filter(|address| bounds::allowed(*address).is_ok()).collect();
        let is_usable = is_running && spec.host_network != Some(true) && !addresses.is_empty();
        let (namespace, name, node) = (pod.namespace()?, pod.name_any(), spec.node_name.clone()?);
        is_usable.then_some(Self { namespace, name, node, addresses })
    }
}

impl fmt::Display for TestPod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, address: &str, spec: &Value, phase: &str) -> SelectedPod {
        let mut pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "namespace": "shop", "name": name },
            "spec": { "nodeName": "a", "containers": [] }, "status": { "phase": phase, "podIPs": [{ "ip": address }, { "ip": "2001:db8::7" }] } });
        pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn first_running_pods_with_own_addresses_are_selected() {
        let own = json!({});
        let mut pods: Vec<SelectedPod> =
            (0..30).rev().map(|n| pod(&format!("p{n:02}"), "10.0.32.7", &own, "Running")).collect();
        pods.insert(7, pod("a-pending", "10.0.32.8", &own, "Pending"));
        pods.insert(8, pod("a-host", "10.0.0.2", &json!({ "hostNetwork": true }), "Running"));
        let mut spoofer = pod("a-spoofer", "169.254.169.254", &own, "Running");
        spoofer.status.as_mut().unwrap().pod_ips.pop();
        pods.insert(9, spoofer);
        pods.insert(10, pod("a-unassigned", "10.0.32.9", &json!({ "nodeName": null }), "Running"));
        let mut leaving = pod("a-leaving", "10.0.32.10", &own, "Running");
        leaving.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        pods.push(leaving);
        let found = running(pods);
        assert_eq!(found[0].addresses, ["10.0.32.7", "2001:db8::7"].map(|address| address.parse::<IpAddr>().unwrap()));
        let names: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), MAX_PODS);
        assert_eq!((names[0].as_str(), names[19].as_str()), ("shop/p00", "shop/p19"));
    }
}
