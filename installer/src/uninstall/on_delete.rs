//! Why the agent is stopped: for a restart or an upgrade, or because its DaemonSet was deleted. Only then may anything be
//! removed: a configuration that is missing during an upgrade is a node without pod network. In doubt everything stays: the
//! `uninstall` command can remove it later.

#[cfg(test)]
mod tests;

use std::time::Duration;

use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use kube::core::{GroupVersionKind, Status};
use resident::api_server;
use resident::logging::chain;

/// A generated name ends with these characters (k8s.io/apimachinery/pkg/util/rand).
const RANDOM: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The time for the answer, connecting included. The kubelet kills the agent some time after SIGTERM: see the manifest.
const ANSWER: Duration = Duration::from_secs(4);

const PLURAL: &str = "daemonsets";

/// Asks once whether a DaemonSet of this pod's namespace was deleted, or is being deleted. The error is the cause of a doubt.
///
/// An invalid token is a doubt, although istio-cni takes it for the end of its service account: a token also ends with its pod's
/// object, which a forced deletion removes at once while the DaemonSet creates the next pod.
pub async fn is_deleted(name: &str) -> Result<bool, String> {
    let silent = || Err(format!("no answer within {} s", ANSWER.as_secs()));
    tokio::time::timeout(ANSWER, asked(name)).await.unwrap_or_else(|_| silent())
}

async fn asked(name: &str) -> Result<bool, String> {
    let (client, _) = api_server::client()?;
    let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("apps", "v1", "DaemonSet"), PLURAL);
    // The namespace is the one that the kubelet mounts with the token.
    let api: Api<DynamicObject> = Api::default_namespaced_with(client, &kind);
    match api.get_metadata(name).await {
        Ok(found) => Ok(found.metadata.deletion_timestamp.is_some()),
        Err(kube::Error::Api(status)) if is_gone(&status, name) => Ok(true),
        Err(kube::Error::Api(status)) => Err(format!("{} {}", status.code, status.message)),
        Err(error) => Err(chain(&error)),
    }
}

/// Whether an error status means that the DaemonSet does not exist. A proxy before the API server answers 404, too, but does
/// not name the object.
fn is_gone(status: &Status, name: &str) -> bool {
    let is_named = status.details.as_ref().is_some_and(|details| details.name == name && details.kind == PLURAL);
    status.code == 404 && is_named
}

/// Why the uninstaller must not run: an agent may start on this node again.
#[must_use]
pub fn refusal(name: &str, is_deleted: &Result<bool, String>) -> Option<String> {
    match is_deleted {
        Ok(true) => None,
        Ok(false) => Some(format!(
            "the DaemonSet {name} exists, and its agents would install everything again: delete it first \
             (docs/uninstall.md), or uninstall this node alone by --force"
        )),
        Err(why) => Some(format!(
            "the DaemonSet {name} may still exist ({why}): apply all of manifests/uninstall, check that this node reaches the \
             API server, or continue by --force"
        )),
    }
}

/// The DaemonSet that created a pod: the pod's name without the five characters that the API server appended. It is not a
/// setting: a renamed DaemonSet would look deleted by its old name.
#[must_use]
pub fn daemon_set_of(pod: &str) -> Option<&str> {
    let (name, random) = pod.rsplit_once('-')?;
    (!name.is_empty() && random.len() == 5 && random.bytes().all(|byte| RANDOM.contains(&byte))).then_some(name)
}
