//! Writes to the API server: statuses, and the finalizer.

use api::{FIELD_MANAGER, NodePolicy, NodePolicyStatus, POLICY_FINALIZER};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use super::engine::FinalizerUpdate;
use crate::cluster::request::{RequestError, params, send};

/// Writes a status in the place of a version of the object, and returns the new version. The uid keeps it from another policy of the
/// same name, the version from the status of another leader.
pub(crate) async fn write_status(
    client: &Client,
    object: &NodePolicy,
    status: &NodePolicyStatus,
    version: Option<&str>,
) -> Result<Option<String>, RequestError> {
    let api: Api<NodePolicy> = Api::all(client.clone());
    let name = object.name_any();
    let api_version = format!("{}/{}", api::GROUP, api::VERSION);
    let metadata = json!({ "name": name, "uid": object.metadata.uid, "resourceVersion": version });
    let patch = json!({ "apiVersion": api_version, "kind": "NodePolicy", "metadata": metadata, "status": status });
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let written = send(api.patch_status(&name, &params, &Patch::Apply(patch))).await?;
    Ok(written.metadata.resource_version)
}

/// Adds or removes our finalizer. Names the version that was read: another one may have other finalizers.
pub(crate) async fn write_finalizer(client: &Client, update: &FinalizerUpdate) -> Result<(), RequestError> {
    let api: Api<NodePolicy> = Api::all(client.clone());
    let object = &update.object;
    let others = object.metadata.finalizers.iter().flatten().filter(|it| *it != POLICY_FINALIZER);
    let own = POLICY_FINALIZER.to_owned();
    let all: Vec<&String> = others.chain((!update.is_removed).then_some(&own)).collect();
    let metadata = json!({ "resourceVersion": object.metadata.resource_version, "finalizers": all });
    let patch = Patch::Merge(json!({ "metadata": metadata }));
    match send(api.patch(&object.name_any(), &params(), &patch)).await.map(drop) {
        // Gone, or another version by now: the next step knows.
        Err(error) if matches!(error.code(), Some(404 | 409)) => Ok(()),
        outcome => outcome,
    }
}
