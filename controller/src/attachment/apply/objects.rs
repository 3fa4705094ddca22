//! Writes to VnicAttachments. A trait, so that tests need no API server.

use std::future::Future;
use std::time::Duration;

use api::{FIELD_MANAGER, VNIC_FINALIZER, VnicAttachment, VnicAttachmentStatus};
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, TestOperation};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use thiserror::Error;
use tokio::time::timeout;
use vcn::Ocid;

use crate::attachment::apply::managed_fields::{compact, is_applied};
use crate::attachment::observe::pod_network::{KubePodNetworks, PodNetwork, PodNetworks};
use crate::profile::select::from_template::profile_of;

/// The deadline of one write.
const DEADLINE: Duration = Duration::from_secs(20);

/// Writes to VnicAttachments. Each applies to the given object only, not to a new one of the same name.
pub trait Objects: Send + Sync + 'static {
    /// Adds or removes our finalizer. Returns the changed object; `None` if it no longer exists.
    fn set_finalizer(
        &self,
        object: &VnicAttachment,
        wanted: bool,
    ) -> impl Future<Output = Result<Option<VnicAttachment>, ObjectError>> + Send;

    /// Writes its whole status, unless the object changed since: a process that stood still may have decided long ago, and
    /// its status would stay wrong until the next regular reconcile. A missing object is fine.
    fn write_status(
        &self,
        object: &VnicAttachment,
        status: &VnicAttachmentStatus,
    ) -> impl Future<Output = Result<(), ObjectError>> + Send;
}

/// Why an object was not written.
#[derive(Debug, Error)]
pub enum ObjectError {
    /// The API server refused, or did not answer.
    #[error("{doing} of VnicAttachment {name}")]
    Kubernetes {
        /// The operation.
        doing: &'static str,
        /// The object.
        name: String,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
    /// No answer in time.
    #[error("{doing} of VnicAttachment {name}: no answer within {DEADLINE:?}")]
    TimedOut {
        /// The operation.
        doing: &'static str,
        /// The object.
        name: String,
    },
}

impl ObjectError {
    /// Whether the object changed: it is reconciled again when the watch delivers it.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        let Self::Kubernetes { source, .. } = self else { return false };
        let kube::Error::Api(status) = source.as_ref() else { return false };
        // A failed condition of a patch: 422 like an invalid field, but without a field name.
        let fields = status.details.as_ref().map_or(0, |details| details.causes.len());
        status.code == 409 || status.code == 422 && fields == 0
    }
}

/// Those of the API server.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "the client has none")]
pub struct KubeObjects(Api<VnicAttachment>, KubePodNetworks);

impl KubeObjects {
    /// Uses this client.
    #[must_use]
    pub fn new(client: Client, pod_networks: KubePodNetworks) -> Self {
        Self(Api::all(client), pod_networks)
    }
}

impl PodNetworks for KubeObjects {
    async fn pod_network(&self, instance: &Ocid) -> PodNetwork {
        self.1.pod_network(instance).await
    }
}

impl Objects for KubeObjects {
    async fn set_finalizer(
        &self,
        object: &VnicAttachment,
        wanted: bool,
    ) -> Result<Option<VnicAttachment>, ObjectError> {
        let mut finalizers: Vec<&str> = object.finalizers().iter().map(String::as_str).collect();
        finalizers.retain(|finalizer| *finalizer != VNIC_FINALIZER);
        if wanted {
            finalizers.push(VNIC_FINALIZER);
        }
        // With the version, because the list is written as a whole and contains finalizers of others.
        let mut metadata = json!({
            "uid": object.uid(), "resourceVersion": object.resource_version(), "finalizers": finalizers,
        });
        let is_dispensable = profile_of(object).is_some() || !is_applied(object);
        if let Some(metadata) = metadata.as_object_mut().filter(|_| wanted && is_dispensable) {
            // The list of field owners is a quarter of the object. The API server starts no new one until a user applies
            // something. An applied object keeps it: otherwise the next `kubectl apply --server-side` would be a conflict.
            metadata.insert("managedFields".to_owned(), json!([{}]));
        }
        let patch = json!({ "metadata": metadata });
        let params = params();
        let name = object.name_any();
        let patch = Patch::Merge(&patch);
        let asked = self.0.patch(&name, &params, &patch);
        present(answered("changing the finalizers", &name, asked).await)
    }

    async fn write_status(&self, object: &VnicAttachment, status: &VnicAttachmentStatus) -> Result<(), ObjectError> {
        let name = object.name_any();
        let doing = "writing the status";
        let status = serde_json::to_value(status).map_err(|error| ObjectError::Kubernetes {
            doing,
            name: name.clone(),
            source: Box::new(kube::Error::SerdeError(error)),
        })?;
        let patch = Patch::Json::<()>(json_patch::Patch(vec![
            is(["metadata", "uid"], object.uid()),
            is(["metadata", "resourceVersion"], object.resource_version()),
            put(["status"], status),
        ]));
        let params = params();
        let asked = self.0.patch_status(&name, &params, &patch);
        present(answered(doing, &name, asked).await).map(drop)
    }
}

/// Never by apply, which would make the API server record field owners.
pub(crate) fn params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

/// The patch is refused unless this holds.
pub(crate) fn is<const N: usize>(path: [&str; N], value: impl Into<Value>) -> PatchOperation {
    PatchOperation::Test(TestOperation { path: PointerBuf::from_tokens(path), value: value.into() })
}

/// Replaces the present value.
pub(crate) fn put<const N: usize>(path: [&str; N], value: Value) -> PatchOperation {
    PatchOperation::Add(AddOperation { path: PointerBuf::from_tokens(path), value })
}

async fn answered<T>(
    doing: &'static str,
    name: &str,
    asked: impl Future<Output = kube::Result<T>>,
) -> Result<T, ObjectError> {
    match timeout(DEADLINE, asked).await {
        Ok(answer) => {
            answer.map_err(|source| ObjectError::Kubernetes { doing, name: name.to_owned(), source: Box::new(source) })
        }
        Err(_) => Err(ObjectError::TimedOut { doing, name: name.to_owned() }),
    }
}

fn present(answer: Result<VnicAttachment, ObjectError>) -> Result<Option<VnicAttachment>, ObjectError> {
    match answer {
        Ok(mut found) => {
            compact(&mut found);
            Ok(Some(found))
        }
        Err(ObjectError::Kubernetes { source, .. }) if matches!(source.as_ref(), kube::Error::Api(status) if status.code == 404) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
