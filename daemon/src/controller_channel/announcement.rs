//! Publishes the channel's port and key as an annotation of the agent's own Pod: one write per start.

use std::time::Duration;

use api::AGENT_CHANNEL_ANNOTATION;
use channel::Announcement;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use resident::api_server::{client, in_cluster};
use resident::logging::chain;
use serde_json::json;
use tokio::time::timeout;

use crate::settings::Settings;
use crate::sources::backoff::persist;

const DEADLINE: Duration = Duration::from_secs(20);

/// Retries until the annotation is written. Returns at once without a cluster, which no controller queries.
pub(super) async fn publish(settings: &Settings, announcement: Announcement, report: impl Fn(Option<String>)) {
    let Some(pod) = settings.pod_name.as_deref().filter(|_| in_cluster()) else { return };
    let annotate = async || write(pod, announcement).await.map_err(|why| format!("annotate the Pod {pod}: {why}"));
    persist(annotate, report).await;
}

async fn write(pod: &str, announcement: Announcement) -> Result<(), String> {
    let (client, _) = client()?;
    let pods: Api<Pod> = Api::default_namespaced(client);
    let value = serde_json::to_string(&announcement).map_err(|error| error.to_string())?;
    let patch = json!({ "metadata": { "annotations": { AGENT_CHANNEL_ANNOTATION: value } } });
    match timeout(DEADLINE, pods.patch_metadata(pod, &PatchParams::default(), &Patch::Merge(patch))).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(chain(&error)),
        Err(_) => Err(format!("the API server does not answer within {} s", DEADLINE.as_secs())),
    }
}
