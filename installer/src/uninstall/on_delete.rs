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

/// The API server's answer about the agent's own DaemonSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnDaemonSet {
    /// It exists.
    Present,
    /// It is being deleted (`metadata.deletionTimestamp`).
    Deleting,
    /// It does not exist (404).
    NotFound,
    /// The token is not valid any more (401).
    Unauthorized,
    /// The right to read it is missing (403).
    Forbidden,
    /// No answer, or none that can be used (time-out, 429, 5xx).
    Unreachable,
}

vcn::words!(
    OwnDaemonSet: Present = "daemonset-present",
    Deleting = "daemonset-deleting",
    NotFound = "daemonset-gone",
    Unauthorized = "unauthorized",
    Forbidden = "forbidden",
    Unreachable = "unreachable",
);

impl OwnDaemonSet {
    /// Whether the agent is stopped because its DaemonSet was deleted.
    ///
    /// An invalid token is a doubt, although istio-cni takes it for the end of its service account: a token also ends with
    /// its pod's object, which a forced deletion removes at once while the DaemonSet creates the next pod.
    #[must_use]
    pub const fn means_uninstall(self) -> bool {
        matches!(self, Self::Deleting | Self::NotFound)
    }
}

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
    let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("apps", "v1", "DaemonSet"), PLURAL);
    // The namespace is the one that the kubelet mounts with the token.
    let api: Api<DynamicObject> = Api::default_namespaced_with(client, &kind);
    match api.get_metadata(name).await {
        Ok(found) if found.metadata.deletion_timestamp.is_some() => (OwnDaemonSet::Deleting, None),
        Ok(_) => (OwnDaemonSet::Present, None),
        Err(kube::Error::Api(status)) => (meaning(&status, name), Some(status.message.clone())),
        Err(error) => (OwnDaemonSet::Unreachable, Some(chain(&error))),
    }
}

/// What an error status means. A proxy before the API server answers 404, too, but does not name the object.
fn meaning(status: &Status, name: &str) -> OwnDaemonSet {
    let is_named = status.details.as_ref().is_some_and(|details| details.name == name && details.kind == PLURAL);
    match status.code {
        404 if is_named => OwnDaemonSet::NotFound,
        401 => OwnDaemonSet::Unauthorized,
        403 => OwnDaemonSet::Forbidden,
        _ => OwnDaemonSet::Unreachable,
    }
}

/// Why the uninstaller must not run: an agent may start on this node again. `cause` explains a doubt.
#[must_use]
pub fn refusal(name: &str, answer: OwnDaemonSet, cause: Option<&str>) -> Option<String> {
    match answer {
        OwnDaemonSet::Deleting | OwnDaemonSet::NotFound => None,
        OwnDaemonSet::Present => Some(format!(
            "the DaemonSet {name} exists, and its agents would install everything again: delete it first \
             (docs/uninstall.md), or uninstall this node alone by --force"
        )),
        doubt => Some(format!(
            "the DaemonSet {name} may still exist ({doubt}: {}): apply all of manifests/uninstall, check that this node \
             reaches the API server, or continue by --force",
            cause.unwrap_or("no cause given")
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
