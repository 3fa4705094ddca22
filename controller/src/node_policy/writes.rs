//! Writes to the API server: statuses, and the finalizer.

use api::{NodePolicy, NodePolicyStatus, POLICY_FINALIZER};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client, ResourceExt as _};

use super::engine::FinalizerUpdate;
use crate::cluster::request::{RequestError, apply_status, set_finalizers};

/// Writes a status in the place of a version of the object, and returns the new version. The version keeps it from the status of
/// another leader.
pub(crate) async fn write_status(
    client: &Client,
    object: &NodePolicy,
    status: &NodePolicyStatus,
    version: Option<String>,
) -> Result<Option<String>, RequestError> {
    let (name, uid) = (object.metadata.name.clone(), object.metadata.uid.clone());
    let metadata = ObjectMeta { name, uid, resource_version: version, ..ObjectMeta::default() };
    let written: NodePolicy = apply_status(client, metadata, status).await?;
    Ok(written.metadata.resource_version)
}

/// Adds or removes our finalizer.
pub(crate) async fn write_finalizer(client: &Client, update: &FinalizerUpdate) -> Result<(), RequestError> {
    let api: Api<NodePolicy> = Api::all(client.clone());
    let object = &update.object;
    let others = object.finalizers().iter().map(String::as_str).filter(|it| *it != POLICY_FINALIZER);
    let all = others.chain((!update.is_removed).then_some(POLICY_FINALIZER)).collect();
    set_finalizers(&api, &object.name_any(), object.metadata.resource_version.as_deref(), all).await
}
