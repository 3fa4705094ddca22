//! The end of the agent, when it is told to end: whether another of us comes, or everything of ours is to be taken off the
//! node. `installer::departure` decides; here the API server is asked, once, and what was decided is done and told.

use std::time::Duration;

use installer::Uninstall;
use installer::departure::{Departure, OwnDaemonSet, daemon_set_of, departure};
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use kube::core::{GroupVersionKind, Status};
use resident::logging::chain;

use crate::api_server;
use crate::settings::Settings;

/// How long the answer may take, connecting included. The kubelet kills us some time after SIGTERM: see the manifest.
const ANSWER: Duration = Duration::from_secs(4);

const KIND: &str = "DaemonSet";
const PLURAL: &str = "daemonsets";

/// Whether the node is to be uninstalled. Not where nobody can be asked, or it was switched off.
pub async fn is_for_good(settings: &Settings) -> bool {
    let daemon_set = settings.pod_name.as_deref().and_then(daemon_set_of);
    let Some(name) = daemon_set.filter(|_| settings.uninstall_when_deleted && api_server::in_cluster()) else {
        return false;
    };
    let asked = tokio::time::timeout(ANSWER, ask(name)).await;
    let silent = || (OwnDaemonSet::Unreachable, Some(format!("no answer within {} s", ANSWER.as_secs())));
    let (answer, why) = asked.unwrap_or_else(|_| silent());
    match departure(answer) {
        Departure::Returning(reason) => {
            tracing::info!(event = "agent.returning", reason = reason.word(), name, why, "everything stays");
            false
        }
        Departure::Leaving(reason) => {
            tracing::info!(event = "agent.leaving", reason = reason.word(), name, "uninstalling");
            true
        }
    }
}

/// The one question; with its answer, what there is to say about it.
async fn ask(name: &str) -> (OwnDaemonSet, Option<String>) {
    let client = match api_server::client() {
        Ok((client, _)) => client,
        Err(why) => return (OwnDaemonSet::Unreachable, Some(why)),
    };
    // The namespace is the one that the kubelet mounts with the token.
    let api: Api<DynamicObject> = Api::default_namespaced_with(client, &daemon_sets());
    match api.get_metadata(name).await {
        Ok(found) => (OwnDaemonSet::Present { deleting: found.metadata.deletion_timestamp.is_some() }, None),
        Err(kube::Error::Api(status)) => (meaning(&status, name), Some(status.message.clone())),
        Err(error) => (OwnDaemonSet::Unreachable, Some(chain(&error))),
    }
}

/// The kind that is asked for.
pub(crate) fn daemon_sets() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("apps", "v1", KIND), PLURAL)
}

/// What a refusal means. Whatever stands between us and the API server answers 404, too, but does not name the object.
pub(crate) fn meaning(status: &Status, name: &str) -> OwnDaemonSet {
    let named = |details: &kube::core::response::StatusDetails| details.name == name && details.kind == PLURAL;
    match status.code {
        404 if status.details.as_ref().is_some_and(named) => OwnDaemonSet::NotFound,
        401 => OwnDaemonSet::Unauthorized,
        403 => OwnDaemonSet::Forbidden,
        _ => OwnDaemonSet::Unreachable,
    }
}

/// Takes everything of ours off the node, as the command does, never forced. To be called when nothing of the agent works
/// any more and its lock is free: `ended` says whether that is sure.
pub fn uninstall(settings: &Settings, ended: bool) {
    if !ended {
        let why = "work of the agent was still under way, and would put back what is removed";
        return tracing::warn!(event = "agent.uninstall_refused", reason = "busy", why, "everything stays; {ELSE}");
    }
    let how = Uninstall {
        sysctl_root: settings.sysctl_root.clone(),
        host_root: settings.host_root.clone(),
        force: false,
        dry_run: false,
    };
    installer::uninstall(&settings.installer, how).log("agent", ELSE);
}

/// What else helps.
const ELSE: &str = "manifests/uninstall.yaml does it when that is mended";

#[cfg(test)]
mod tests {
    use kube::core::response::StatusDetails;

    use super::*;

    fn refusal(code: u16, kind: &str, name: &str) -> Status {
        let details = StatusDetails {
            name: name.into(),
            group: "apps".into(),
            kind: kind.into(),
            uid: String::new(),
            causes: Vec::new(),
            retry_after_seconds: 0,
        };
        Status { code, details: Some(details), ..Status::default() }
    }

    #[test]
    fn only_an_answer_that_names_the_daemonset_says_that_it_is_gone() {
        let gone = refusal(404, "daemonsets", "agent");
        assert_eq!(meaning(&gone, "agent"), OwnDaemonSet::NotFound);
        for doubtful in [
            refusal(404, "daemonsets", "other"),
            refusal(404, "namespaces", "agent"),
            Status { code: 404, ..Status::default() },
            refusal(429, "daemonsets", "agent"),
            refusal(503, "daemonsets", "agent"),
        ] {
            assert_eq!(meaning(&doubtful, "agent"), OwnDaemonSet::Unreachable, "{doubtful:?}");
        }
        assert_eq!(meaning(&refusal(401, "", ""), "agent"), OwnDaemonSet::Unauthorized);
        assert_eq!(meaning(&refusal(403, "daemonsets", "agent"), "agent"), OwnDaemonSet::Forbidden);
    }
}
