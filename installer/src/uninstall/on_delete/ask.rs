//! Asks the API server whether the agent's DaemonSet exists.

use std::time::Duration;

use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use kube::core::{GroupVersionKind, Status};
use resident::api_server;
use resident::logging::chain;

use super::OwnDaemonSet;

/// The time for the answer, connecting included. The kubelet kills the agent some time after SIGTERM: see the manifest.
const ANSWER: Duration = Duration::from_secs(4);

const KIND: &str = "DaemonSet";
const PLURAL: &str = "daemonsets";

/// Asks once for a DaemonSet of this pod's namespace. Returns the answer, and the cause of a doubt.
pub async fn ask(name: &str) -> (OwnDaemonSet, Option<String>) {
    let silent = || (OwnDaemonSet::Unreachable, Some(format!("no answer within {} s", ANSWER.as_secs())));
    tokio::time::timeout(ANSWER, asked(name)).await.unwrap_or_else(|_| silent())
}

async fn asked(name: &str) -> (OwnDaemonSet, Option<String>) {
    let client = match api_server::client() {
        Ok((client, _)) => client,
        Err(why) => return (OwnDaemonSet::Unreachable, Some(why)),
    };
    // The namespace is the one that the kubelet mounts with the token.
    let api: Api<DynamicObject> = Api::default_namespaced_with(client, &daemon_sets());
    match api.get_metadata(name).await {
        Ok(found) if found.metadata.deletion_timestamp.is_some() => (OwnDaemonSet::Deleting, None),
        Ok(_) => (OwnDaemonSet::Present, None),
        Err(kube::Error::Api(status)) => (meaning(&status, name), Some(status.message.clone())),
        Err(error) => (OwnDaemonSet::Unreachable, Some(chain(&error))),
    }
}

/// The kind that is read.
#[must_use]
pub fn daemon_sets() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("apps", "v1", KIND), PLURAL)
}

/// What an error status means. A proxy before the API server answers 404, too, but does not name the object.
#[must_use]
pub fn meaning(status: &Status, name: &str) -> OwnDaemonSet {
    let named = |details: &kube::core::response::StatusDetails| details.name == name && details.kind == PLURAL;
    match status.code {
        404 if status.details.as_ref().is_some_and(named) => OwnDaemonSet::NotFound,
        401 => OwnDaemonSet::Unauthorized,
        403 => OwnDaemonSet::Forbidden,
        _ => OwnDaemonSet::Unreachable,
    }
}
