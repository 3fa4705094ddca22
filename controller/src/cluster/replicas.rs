//! The replicas of the controller, which are its Pods.

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};

use crate::cluster::request::{RequestError, send};

/// The label of their Pods, as in manifests/base/controller.yaml.
pub(crate) const LABEL: &str = "app.kubernetes.io/name=oke-node-controller";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Replica {
    pub pod: String,
    pub node: String,
    pub is_ready: bool,
}

pub(crate) async fn replicas(pods: &Api<Pod>) -> Result<Vec<Replica>, RequestError> {
    let pods = send(pods.list(&ListParams::default().labels(LABEL))).await?;
    Ok(pods.items.iter().map(Replica::of).collect())
}

impl Replica {
    fn of(pod: &Pod) -> Self {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let is_ready = conditions.filter(|one| one.type_ == "Ready").any(|one| one.status == "True");
        Self {
            pod: pod.name_any(),
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
            is_ready: is_ready && pod.metadata.deletion_timestamp.is_none(),
        }
    }
}
