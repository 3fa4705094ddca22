//! The agents' Pods: on which node each runs, where its channel listens, and its key. Synchronous and pure, but for the watch.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use api::{AGENT_CHANNEL_ANNOTATION, Received};
use channel::{Announcement, Peer};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::core::{ApiResource, Object};
use kube::{Api, Client};
use serde::Deserialize;
use thiserror::Error;
use tokio::sync::watch;

use crate::cluster::store::{PAGE, StoreUpdate, WatchedKind, Watches, follow};

/// The label of the agents' Pods, as in manifests/base/daemonset.yaml.
const LABEL: &str = "app.kubernetes.io/name=oke-node-agent";

/// A Pod as received: fields that are not named here are not even read.
pub(crate) type PodObject = Object<PodSpec, PodStatus>;

/// The fields that are read of a Pod's spec.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodSpec {
    node_name: Option<String>,
}

/// The fields that are read of a Pod's status.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PodStatus {
    #[serde(rename = "podIP")]
    pod_ip: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AgentPod {
    name: String,
    /// Empty until it is scheduled.
    node: String,
    peer: Result<Peer, NoPeer>,
    created: Option<Timestamp>,
}

/// Why a node's agent cannot be queried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum NoPeer {
    #[error("no agent runs on the node")]
    NoPod,
    /// The kubelet has not started it yet.
    #[error("the agent's Pod has no address yet")]
    NoAddress,
    /// It runs, or an older version.
    #[error("the agent has not published its key: its Pod lacks the annotation {AGENT_CHANNEL_ANNOTATION}")]
    NoKey,
    /// Not what an agent writes.
    #[error("the annotation {AGENT_CHANNEL_ANNOTATION} of the agent's Pod is invalid")]
    InvalidKey,
}

#[derive(Debug, Default)]
pub(crate) struct AgentPods {
    pods: HashMap<String, AgentPod>,
    /// Node and Pod. During an update a node may have two.
    by_node: BTreeSet<(String, String)>,
}

impl AgentPod {
    /// The kept part of a Pod. One that cannot be read belongs to no node.
    fn received(object: Received<PodObject>) -> Self {
        Self::of(object.0.unwrap_or_else(|unreadable| {
            let name = unreadable.metadata.name.as_deref();
            tracing::warn!(event = "agent.pod_unreadable", name, error = unreadable.error, "no request is sent");
            PodObject { types: None, metadata: unreadable.metadata, spec: PodSpec::default(), status: None }
        }))
    }

    /// The kept part of a Pod.
    pub(crate) fn of(object: PodObject) -> Self {
        let metadata = object.metadata;
        let annotations = metadata.annotations.unwrap_or_default();
        let address = object.status.unwrap_or_default().pod_ip;
        let address = address.and_then(|text| text.parse::<IpAddr>().ok());
        let channel = annotations.get(AGENT_CHANNEL_ANNOTATION).map(|text| serde_json::from_str::<Announcement>(text));
        let peer = match (address, channel) {
            (_, Some(Err(_))) => Err(NoPeer::InvalidKey),
            (None, _) => Err(NoPeer::NoAddress),
            (_, None) => Err(NoPeer::NoKey),
            (Some(address), Some(Ok(Announcement { port, key }))) => {
                Ok(Peer { address: SocketAddr::new(address, port), key })
            }
        };
        Self {
            name: metadata.name.unwrap_or_default(),
            node: object.spec.node_name.unwrap_or_default(),
            peer,
            created: metadata.creation_timestamp.map(|time| time.0),
        }
    }
}

impl AgentPods {
    /// The agent of a node: of several, one that can be queried, and the youngest.
    pub(crate) fn peer(&self, node: &str) -> Result<Peer, NoPeer> {
        let of_node = self.by_node.range((node.to_owned(), String::new())..).take_while(|(other, _)| other == node);
        let pods = of_node.filter_map(|(_, pod)| self.pods.get(pod));
        pods.max_by_key(|pod| (pod.peer.is_ok(), pod.created)).map_or(Err(NoPeer::NoPod), |pod| pod.peer)
    }

    /// A change; returns the nodes that it is about.
    fn apply(&mut self, news: StoreUpdate<AgentPod>) -> BTreeSet<String> {
        match news {
            StoreUpdate::All(pods) => {
                let mut nodes: BTreeSet<String> = self.by_node.iter().map(|(node, _)| node.clone()).collect();
                *self = Self::default();
                nodes.extend(pods.into_iter().filter_map(|pod| self.insert(pod)));
                nodes
            }
            StoreUpdate::One(pod) => self.insert(pod).into_iter().collect(),
            StoreUpdate::Gone(name) => self.remove(&name).into_iter().collect(),
        }
    }

    fn insert(&mut self, pod: AgentPod) -> Option<String> {
        self.remove(&pod.name);
        let node = pod.node.clone();
        if node.is_empty() {
            return None;
        }
        self.by_node.insert((node.clone(), pod.name.clone()));
        self.pods.insert(pod.name.clone(), pod);
        Some(node)
    }

    fn remove(&mut self, name: &str) -> Option<String> {
        let pod = self.pods.remove(name)?;
        self.by_node.remove(&(pod.node.clone(), pod.name));
        Some(pod.node)
    }
}

/// Follows the agents' Pods; never returns. `changed` is called with the agents of nodes where something changed.
pub(crate) async fn follow_agents(
    client: Client,
    namespace: &str,
    watches: &Watches,
    read: watch::Sender<bool>,
    changed: impl Fn(Vec<(Arc<str>, Result<Peer, NoPeer>)>),
) {
    let api = |client| Api::<Received<PodObject>>::namespaced_with(client, namespace, &ApiResource::erase::<Pod>(&()));
    let watched = WatchedKind { client, api, page: PAGE, labels: Some(LABEL), what: "Pods", watches };
    let mut pods = AgentPods::default();
    follow(watched, read, AgentPod::received, |news| {
        let nodes = pods.apply(news);
        changed(nodes.into_iter().map(|node| (Arc::from(node.as_str()), pods.peer(&node))).collect());
    })
    .await;
}

#[cfg(test)]
mod tests {
    use channel::Fingerprint;
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, created: &str, annotation: Option<&str>) -> AgentPod {
        let annotations: Value = annotation.map(|text| json!({ AGENT_CHANNEL_ANNOTATION: text })).unwrap_or_default();
        let object = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "creationTimestamp": created, "annotations": annotations },
            "spec": { "nodeName": "a", "containers": [] }, "status": { "podIP": "10.0.0.7", "phase": "Running" },
        });
        AgentPod::of(serde_json::from_value(object).unwrap())
    }

    fn annotation(port: u16) -> String {
        json!({ "port": port, "key": Fingerprint::of(b"a"), "later": true }).to_string()
    }

    #[test]
    fn hostile_metadata_of_a_pod_spoils_only_itself() {
        let object = |metadata: Value| {
            let object = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": { "nodeName": "a" },
                "status": { "podIP": "10.0.0.7" } });
            AgentPod::received(serde_json::from_value(object).unwrap())
        };
        let annotations = json!({ AGENT_CHANNEL_ANNOTATION: annotation(1) });
        // An agent may write its Pod's metadata, and the API server takes times that our type does not.
        let writers = json!([{ "manager": "rogue", "time": "9999-12-31T23:59:59Z" }]);
        let pod = object(json!({ "name": "p", "annotations": annotations, "managedFields": writers }));
        assert_eq!((pod.node.as_str(), pod.peer.is_ok()), ("a", true));
        for channel in ["[".repeat(100_000), "9".repeat(100_000), r#"{"port":1e300,"key":"sha256:"}"#.to_owned()] {
            let pod = object(json!({ "name": "p", "annotations": { AGENT_CHANNEL_ANNOTATION: channel } }));
            assert_eq!(pod.peer, Err(NoPeer::InvalidKey));
        }
        let unreadable = object(json!({ "name": "p", "creationTimestamp": "9999-12-31T23:59:59Z" }));
        assert_eq!((unreadable.name.as_str(), unreadable.node.as_str()), ("p", ""));
    }

    #[test]
    fn node_has_the_youngest_agent_that_published_a_key() {
        let mut pods = AgentPods::default();
        assert_eq!(pods.peer("a"), Err(NoPeer::NoPod));
        assert_eq!(pod("a", "2026-01-01T00:00:00Z", None).peer, Err(NoPeer::NoKey));
        assert_eq!(pod("a", "2026-01-01T00:00:00Z", Some("{}")).peer, Err(NoPeer::InvalidKey));
        pods.apply(StoreUpdate::One(pod("old", "2026-01-01T00:00:00Z", Some(&annotation(1)))));
        pods.apply(StoreUpdate::One(pod("new", "2026-01-02T00:00:00Z", None)));
        assert_eq!(pods.peer("a").map(|peer| peer.address), Ok("10.0.0.7:1".parse().unwrap()));
        pods.apply(StoreUpdate::One(pod("new", "2026-01-02T00:00:00Z", Some(&annotation(2)))));
        assert_eq!(pods.peer("a").map(|peer| peer.address.port()), Ok(2));
        pods.apply(StoreUpdate::Gone("new".to_owned()));
        assert_eq!(pods.peer("a").map(|peer| peer.address.port()), Ok(1));
        let nodes = pods.apply(StoreUpdate::All(Vec::new()));
        assert_eq!((nodes, pods.peer("a")), (BTreeSet::from(["a".to_owned()]), Err(NoPeer::NoPod)));
    }
}
