//! The Pods that apply files: listed, created and deleted.

use std::time::Duration;

use api::Received;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use resident::logging::chain;
use tunables::files::FileGrant;
use vcn::fnv1a_32;

use super::plan::{Confirmation, PodEnd, PodRequest, pod_order};
use crate::cluster::own_image::own_image;
use crate::cluster::request::send;
use crate::operations::{OperationPod, PodPurpose, PodState, create_pod, delete_pod, pods};

/// Longer than the program's own limits: a change, its confirmation and its rollback.
pub(super) const LIMIT: Duration = Duration::from_secs(300);
/// How long a kubelet and a runtime that work take to start a container, and to pull its image, many times over.
pub(super) const START_LIMIT: Duration = Duration::from_secs(120);
/// The beginning of their names.
const PREFIX: &str = "files-";
const LABELS: &str = "app.kubernetes.io/name=oke-node-task";

#[derive(Clone, Debug)]
pub(crate) struct FilePod {
    pub name: String,
    pub node: String,
    /// The beginning of its order.
    pub order: String,
    pub state: PodState,
}

/// What the requests need.
#[derive(Clone)]
pub(crate) struct FilePods {
    pub client: Client,
    /// The namespace of the controller, and the name of its Pod.
    pub namespace: String,
    pub identity: String,
    /// What the cluster's owner permits. Without any there are no Pods.
    pub grants: Vec<FileGrant>,
}

impl FilePods {
    /// All of them.
    ///
    /// # Errors
    /// When they cannot be listed, in words.
    pub(crate) async fn list(&self) -> Result<Vec<FilePod>, String> {
        let labeled = ListParams::default().labels(LABELS);
        let listed = send(pods(&self.client).list(&labeled)).await.map_err(|error| chain(&error))?;
        Ok(listed.items.into_iter().filter_map(file_pod).collect())
    }

    /// Creates the Pod of a node. One that is there already stays.
    ///
    /// # Errors
    /// When the API server refused, in words: during an update of the controller, its image differs from the image of its Deployment.
    pub(crate) async fn create(&self, request: &PodRequest) -> Result<(), String> {
        let image = own_image(&self.client, &self.namespace, &self.identity).await?;
        let pod = self.pod(request, &image).map_err(|error| error.to_string())?;
        create_pod(&self.client, &pod).await.map_err(|error| chain(&error))
    }

    fn pod(&self, request: &PodRequest, image: &str) -> serde_json::Result<Pod> {
        let mut arguments = vec!["operation", "apply-files", "--sha256", &request.order];
        for grant in &self.grants {
            arguments.extend(["--grant", grant.as_str()]);
        }
        let pod = OperationPod {
            name: &format!("{PREFIX}{:08x}-{}", fnv1a_32(request.node.bytes()), pod_order(&request.order)),
            node: &request.node,
            purpose: PodPurpose::Files(&self.grants),
            arguments: &arguments,
            limit: LIMIT,
        };
        pod.object(image)
    }

    /// Deletes a Pod that ended, at once.
    ///
    /// # Errors
    /// When the API server refused, in words.
    pub(crate) async fn delete(&self, end: &PodEnd) -> Result<(), String> {
        delete_pod(&self.client, &end.pod).await.map(drop).map_err(|error| chain(&error))
    }

    /// Whether the Node is Ready, and its kubelet reported that after its restart. The store has no heartbeats, so the Node is read.
    ///
    /// # Errors
    /// When it cannot be read, in words.
    pub(crate) async fn is_ready_since(&self, confirmation: &Confirmation) -> Result<bool, String> {
        let nodes: Api<Received<Node>> = Api::all(self.client.clone());
        let one = ListParams::default().fields(&format!("metadata.name={}", confirmation.node));
        let found = send(nodes.list(&one)).await.map_err(|error| chain(&error))?;
        let node = found.items.into_iter().next().and_then(|node| node.0.ok());
        Ok(node.is_some_and(|node| is_ready_since(&node, confirmation.kubelet_started)))
    }
}

/// A Pod of files; those of tasks have other names.
fn file_pod(received: Received<Pod>) -> Option<FilePod> {
    let name = received.name_any();
    let (_, order) = name.strip_prefix(PREFIX)?.split_once('-')?;
    let order = order.to_owned();
    let pod = received.0.ok()?;
    let node = pod.spec.as_ref()?.node_name.clone()?;
    Some(FilePod { state: PodState::of(&pod, &node), name, node, order })
}

fn is_ready_since(node: &Node, started: Option<i64>) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.into_iter().flatten().find(|condition| condition.type_ == "Ready");
    ready.is_some_and(|ready| {
        let heartbeat = ready.last_heartbeat_time.as_ref().map(|time| time.0.as_second());
        ready.status == "True" && started.is_none_or(|started| heartbeat.is_some_and(|heartbeat| heartbeat > started))
    })
}
