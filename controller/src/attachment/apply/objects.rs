//! Writes to VnicAttachments. A trait, so that tests need no API server.

use std::future::Future;

use api::{Received, VNIC_FINALIZER, VnicAttachment, VnicAttachmentStatus};
use kube::api::Patch;
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use vcn::Ocid;

use crate::attachment::observe::pod_network::{KubePodNetworks, PodNetwork, PodNetworkReadError};
use crate::cluster::managed_fields::{compact, is_applied};
use crate::cluster::request::{RequestError, is, params, put, send};
use crate::cluster::stamp::profile_of;

/// Writes to VnicAttachments, each to the given object only, not to a new one of the same name; and OKE's pod networks.
pub trait Objects: Send + Sync + 'static {
    /// Adds or removes our finalizer. Returns the changed object; `None` if it no longer exists.
    fn set_finalizer(
        &self,
        object: &VnicAttachment,
        is_present: bool,
    ) -> impl Future<Output = Result<Option<VnicAttachment>, RequestError>> + Send;

    /// Writes its whole status, unless the object changed since: a process that stood still may have decided long ago, and
    /// its status would stay wrong until the next regular reconcile. A missing object is fine.
    fn write_status(
        &self,
        object: &VnicAttachment,
        status: &VnicAttachmentStatus,
    ) -> impl Future<Output = Result<(), RequestError>> + Send;

    /// The pod network of this instance, as it is now.
    fn pod_network(&self, instance: &Ocid) -> impl Future<Output = Result<PodNetwork, PodNetworkReadError>> + Send;
}

/// Those of the API server.
#[derive(Clone)]
pub struct KubeObjects(Api<Received<VnicAttachment>>, KubePodNetworks);

impl KubeObjects {
    /// Writes objects with this client, and reads pod networks.
    pub fn new(client: Client, pod_networks: KubePodNetworks) -> Self {
        Self(Api::all(client), pod_networks)
    }
}

impl Objects for KubeObjects {
    async fn set_finalizer(
        &self,
        object: &VnicAttachment,
        is_present: bool,
    ) -> Result<Option<VnicAttachment>, RequestError> {
        let mut finalizers: Vec<&str> = object.finalizers().iter().map(String::as_str).collect();
        finalizers.retain(|finalizer| *finalizer != VNIC_FINALIZER);
        if is_present {
            finalizers.push(VNIC_FINALIZER);
        }
        // With the version, because the list is written as a whole and contains finalizers of others.
        let mut metadata = json!({
            "uid": object.uid(), "resourceVersion": object.resource_version(), "finalizers": finalizers,
        });
        let is_dispensable = profile_of(object).is_some() || !is_applied(object);
        if let Some(metadata) = metadata.as_object_mut().filter(|_| is_present && is_dispensable) {
            // The list of field owners is a quarter of the object. The API server starts no new one until a user applies
            // something. An applied object keeps it: otherwise the next `kubectl apply --server-side` would be a conflict.
            metadata.insert("managedFields".to_owned(), json!([{}]));
        }
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        present(send(self.0.patch(&object.name_any(), &params(), &patch)).await)
    }

    async fn write_status(&self, object: &VnicAttachment, status: &VnicAttachmentStatus) -> Result<(), RequestError> {
        let status = serde_json::to_value(status).map_err(|error| Box::new(kube::Error::SerdeError(error)))?;
        let patch = Patch::Json::<()>(json_patch::Patch(vec![
            is(["metadata", "uid"], object.uid()),
            is(["metadata", "resourceVersion"], object.resource_version()),
            put(["status"], status),
        ]));
        present(send(self.0.patch_status(&object.name_any(), &params(), &patch)).await).map(drop)
    }

    async fn pod_network(&self, instance: &Ocid) -> Result<PodNetwork, PodNetworkReadError> {
        self.1.pod_network(instance).await
    }
}

fn present(answer: Result<Received<VnicAttachment>, RequestError>) -> Result<Option<VnicAttachment>, RequestError> {
    match answer {
        Ok(Received(Ok(mut found))) => {
            compact(&mut found);
            Ok(Some(found))
        }
        Ok(Received(Err(unreadable))) => Err(RequestError::Unreadable(unreadable.error)),
        Err(error) if error.code() == Some(404) => Ok(None),
        Err(error) => Err(error),
    }
}
