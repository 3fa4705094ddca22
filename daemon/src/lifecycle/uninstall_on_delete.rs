//! The end of the agent by a signal: whether another agent comes, or all our files and objects are to be removed from the
//! node. `installer::on_delete` reads the API server and decides; this module executes and logs the decision.

use installer::on_delete::{OwnDaemonSet, daemon_set_of, own_daemon_set};
use installer::{KernelRoots, Uninstall};
use resident::api_server;

use crate::settings::{Permission, Settings};

/// Whether the node is to be uninstalled. Not if the API server does not answer, or it was switched off.
pub(crate) async fn is_for_good(settings: &Settings) -> bool {
    let daemon_set = settings.pod_name.as_deref().and_then(daemon_set_of);
    let Some(name) =
        daemon_set.filter(|_| settings.uninstall_when_deleted == Permission::Allow && api_server::in_cluster())
    else {
        return false;
    };
    let (reason, why) = match own_daemon_set(name).await {
        Ok(OwnDaemonSet::Deleted) => {
            let reason = "daemonset-gone";
            tracing::info!(event = "agent.leaving", reason, name, "removing our network from this node");
            return true;
        }
        Ok(OwnDaemonSet::Present) => ("daemonset-present", None),
        Ok(OwnDaemonSet::OthersPresent(names)) => ("others-present", Some(names)),
        Err(why) => ("unknown", Some(why)),
    };
    tracing::info!(event = "agent.returning", reason, name, why, "nothing is removed from this node");
    false
}

/// Removes our files and objects from the node, as the command does, never forced. To be called when nothing of the agent works
/// any more and its lock is free: `ended` says whether that is sure.
pub(crate) fn uninstall(settings: &Settings, ended: bool) {
    if !ended {
        let why = "a reconcile was still running and could recreate the objects";
        return tracing::warn!(event = "agent.uninstall_refused", reason = "busy", why, "everything stays; {ELSE}");
    }
    let how = Uninstall {
        roots: KernelRoots { sysctl: settings.sysctl_root.clone(), host: settings.host_root.clone() },
        force: false,
        // Read before.
        returning: None,
        dry_run: false,
    };
    installer::uninstall(&settings.installer, how).log("agent", ELSE);
}

const ELSE: &str = "fix the cause, then run `kubectl apply -k manifests/uninstall`";
