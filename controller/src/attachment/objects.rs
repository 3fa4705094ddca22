//! What is written to VnicAttachments. A trait, so that tests need no API server.

use std::future::Future;
use std::time::Duration;

use api::{FIELD_MANAGER, VNIC_FINALIZER, VnicAttachment, VnicAttachmentStatus};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::json;
use thiserror::Error;
use tokio::time::timeout;

/// For one write.
const DEADLINE: Duration = Duration::from_secs(20);

/// Writes to VnicAttachments. Each is about the very object that is given: one of the same name that was made anew is left
/// alone.
pub trait Objects: Send + Sync + 'static {
    /// Adds or removes our finalizer. Returns the object as it is then; `None` when it is no more.
    fn set_finalizer(
        &self,
        object: &VnicAttachment,
        wanted: bool,
    ) -> impl Future<Output = Result<Option<VnicAttachment>, ObjectError>> + Send;

    /// Writes its status, all of it. That the object is no more is fine.
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
        /// What.
        doing: &'static str,
        /// Of which.
        name: String,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },
    /// It did not answer in time.
    #[error("{doing} of VnicAttachment {name}: no answer within {DEADLINE:?}")]
    TimedOut {
        /// What.
        doing: &'static str,
        /// Of which.
        name: String,
    },
}

impl ObjectError {
    /// Whether the object is another than was known: it is looked at again as soon as it is known.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Kubernetes { source, .. } if matches!(source.as_ref(), kube::Error::Api(status) if status.code == 409))
    }
}

/// The API server's.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "the client has none")]
pub struct KubeObjects(Api<VnicAttachment>);

impl KubeObjects {
    /// Those that this client sees.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self(Api::all(client))
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
        // With the version, for the list is written as a whole and others' finalizers are in it.
        let patch = json!({ "metadata": {
            "uid": object.uid(), "resourceVersion": object.resource_version(), "finalizers": finalizers,
        }});
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let name = object.name_any();
        let patch = Patch::Merge(&patch);
        let asked = self.0.patch(&name, &params, &patch);
        present(answered("changing the finalizers", &name, asked).await)
    }

    async fn write_status(&self, object: &VnicAttachment, status: &VnicAttachmentStatus) -> Result<(), ObjectError> {
        let patch = json!({
            "apiVersion": VnicAttachment::api_version(&()),
            "kind": VnicAttachment::kind(&()),
            "metadata": { "uid": object.uid() },
            "status": status,
        });
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let name = object.name_any();
        let patch = Patch::Apply(&patch);
        let asked = self.0.patch_status(&name, &params, &patch);
        present(answered("writing the status", &name, asked).await).map(drop)
    }
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

fn present<T>(answer: Result<T, ObjectError>) -> Result<Option<T>, ObjectError> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(ObjectError::Kubernetes { source, .. }) if matches!(source.as_ref(), kube::Error::Api(status) if status.code == 404) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
