//! Manifests, applied as `kubectl apply --server-side` does, in the order in which they are given.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, discovery};
use serde::Deserialize;
use serde_json::Value;

use anyhow::{Context, Result, anyhow};

const MANAGER: &str = "kube-harness";
/// A definition is served a moment after it was made.
const SERVED_WITHIN: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Applies every document of a file, or of a folder's `.yaml` files by name; folders below are left out, for patches.
pub(crate) async fn apply(client: &Client, path: &Path) -> Result<()> {
    for file in files(path)? {
        let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        for document in serde_yaml_ng::Deserializer::from_str(&text) {
            let invalid = |error| anyhow!("{}: {error}", file.display());
            let document = Value::deserialize(document).map_err(invalid)?;
            if !document.is_null() {
                apply_object(client, document).await?;
            }
        }
    }
    Ok(())
}

/// Applies one object, its status too where it has one.
pub(crate) async fn apply_object(client: &Client, document: Value) -> Result<()> {
    let object: DynamicObject =
        serde_json::from_value(document).map_err(|error| anyhow!("this is not an object of Kubernetes: {error}"))?;
    let what = name_of(&object);
    let types = object.types.clone().ok_or_else(|| anyhow!("{what} has no apiVersion and kind"))?;
    let kind = GroupVersionKind::try_from(&types).map_err(|error| anyhow!("{what}: {error}"))?;
    let name = object.metadata.name.clone().ok_or_else(|| anyhow!("{what} has no name"))?;
    let (resource, capabilities) = served(client, &kind).await?;
    let api: Api<DynamicObject> = match (&capabilities.scope, &object.metadata.namespace) {
        (discovery::Scope::Cluster, _) => Api::all_with(client.clone(), &resource),
        (discovery::Scope::Namespaced, Some(namespace)) => Api::namespaced_with(client.clone(), namespace, &resource),
        (discovery::Scope::Namespaced, None) => Api::default_namespaced_with(client.clone(), &resource),
    };
    let as_us = PatchParams::apply(MANAGER).force();
    api.patch(&name, &as_us, &Patch::Apply(&object)).await.with_context(|| format!("apply {what}"))?;
    if object.data.get("status").is_some() && capabilities.subresources.iter().any(|(sub, _)| sub.plural == "status") {
        api.patch_status(&name, &as_us, &Patch::Apply(&object))
            .await
            .with_context(|| format!("apply the status of {what}"))?;
    }
    match defines(&object) {
        Some(defined) => listed(client, &defined).await,
        None => Ok(()),
    }
}

/// Waits until a kind can be listed: its handler comes after discovery, and the cache that lists are made of after that. Until
/// then they are answered 404 and 429.
async fn listed(client: &Client, kind: &GroupVersionKind) -> Result<()> {
    let (resource, _) = served(client, kind).await?;
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let deadline = Instant::now() + SERVED_WITHIN;
    loop {
        match api.list(&ListParams::default()).await {
            Ok(_) => return Ok(()),
            Err(_) if Instant::now() < deadline => tokio::time::sleep(POLL_INTERVAL).await,
            Err(error) => return Err(error).with_context(|| format!("list {} {}", kind.api_version(), kind.kind)),
        }
    }
}

/// What a kind is called in URLs, once it is served.
async fn served(
    client: &Client,
    kind: &GroupVersionKind,
) -> Result<(discovery::ApiResource, discovery::ApiCapabilities)> {
    let deadline = Instant::now() + SERVED_WITHIN;
    loop {
        match discovery::pinned_kind(client, kind).await {
            Ok(found) => return Ok(found),
            Err(_) if Instant::now() < deadline => tokio::time::sleep(POLL_INTERVAL).await,
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("find out where {} {} is served", kind.api_version(), kind.kind));
            }
        }
    }
}

/// The kind that an object defines, if it is a CustomResourceDefinition.
fn defines(object: &DynamicObject) -> Option<GroupVersionKind> {
    if object.types.as_ref()?.kind != "CustomResourceDefinition" {
        return None;
    }
    let text = |pointer: &str| object.data.pointer(pointer)?.as_str();
    let (group, kind) = (text("/spec/group")?, text("/spec/names/kind")?);
    Some(GroupVersionKind::gvk(group, text("/spec/versions/0/name")?, kind))
}

fn name_of(object: &DynamicObject) -> String {
    let kind = object.types.as_ref().map_or("an object", |types| types.kind.as_str());
    format!("{kind} {}", object.metadata.name.as_deref().unwrap_or("without a name"))
}

fn files(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let doing = || format!("list {}", path.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(path).with_context(doing)? {
        let file = entry.with_context(doing)?.path();
        if file.is_file() && file.extension().is_some_and(|extension| extension == "yaml") {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}
