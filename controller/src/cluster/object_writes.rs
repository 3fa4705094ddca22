//! Writes of our custom resources: statuses, and finalizers.

use std::fmt::Debug;

use api::{FIELD_MANAGER, Received};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams};
use kube::core::ClusterResourceScope;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::cluster::request::{RequestError, params, send, settled};

/// Writes a status and returns the new version. If a version is given, the write replaces only that one, so it never overwrites the
/// status of another leader. The uid protects a later object of the same name.
pub(crate) async fn write_status<K>(
    client: &Client,
    object: &K,
    status: &impl Serialize,
    version: Option<&str>,
) -> Result<Option<String>, RequestError>
where
    K: Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + Debug + DeserializeOwned,
{
    let api: Api<K> = Api::all(client.clone());
    let (name, resource_version) = (object.name_any(), version.map(str::to_owned));
    let metadata =
        ObjectMeta { name: Some(name.clone()), uid: object.uid(), resource_version, ..ObjectMeta::default() };
    let (version, kind) = (K::api_version(&()), K::kind(&()));
    let patch = json!({ "apiVersion": version, "kind": kind, "metadata": metadata, "status": status });
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let written = send(api.patch_status(&name, &params, &Patch::Apply(patch))).await?;
    Ok(written.meta().resource_version.clone())
}

/// Adds or removes a finalizer. The patch names the version that was read: a later one may have other finalizers.
pub(crate) async fn write_finalizer<K>(
    client: &Client,
    object: &K,
    finalizer: &str,
    is_removed: bool,
) -> Result<(), RequestError>
where
    K: Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + Debug + DeserializeOwned,
{
    // Also for an object that this version cannot parse.
    let api: Api<Received<K>> = Api::all(client.clone());
    let others = object.meta().finalizers.iter().flatten().map(String::as_str).filter(|it| *it != finalizer);
    let all: Vec<&str> = others.chain((!is_removed).then_some(finalizer)).collect();
    let metadata = json!({ "resourceVersion": object.meta().resource_version, "finalizers": all });
    let patch = Patch::Merge(json!({ "metadata": metadata }));
    settled(send(api.patch(&object.name_any(), &params(), &patch)).await)
}
