//! Why the agent is stopped: for a restart or an upgrade, or because its DaemonSet was deleted. Only then may anything be
//! removed: a configuration that is missing during an upgrade is a node without pod network. In doubt everything stays: the
//! `uninstall` command can remove it later.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::daemon_sets::DaemonSets;

/// A generated name ends with these characters (k8s.io/apimachinery/pkg/util/rand).
const RANDOM: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The time for the answer, connecting included. The kubelet kills the agent some time after SIGTERM: see the manifest.
const ANSWER: Duration = Duration::from_secs(4);

/// The time between two reads while the DaemonSets of an installation are deleted one after the other.
const RETRY: Duration = Duration::from_millis(500);

/// The state of an agent's own DaemonSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnDaemonSet {
    /// It is there: the pod is replaced or rescheduled.
    Present,
    /// It was deleted, or is being deleted, as was every other DaemonSet of agents.
    Deleted,
    /// It was deleted, but these run agents: one of them may be for this node.
    OthersPresent(String),
}

/// Reads the state of a DaemonSet of this pod's namespace. The error is the reason why it is unknown.
///
/// An invalid token is a doubt, although istio-cni takes it for the end of its service account. A token also ends with its pod's
/// object. A forced deletion removes that object at once, while the DaemonSet creates the next pod.
pub async fn own_daemon_set(name: &str) -> Result<OwnDaemonSet, String> {
    let mut others = None;
    let read = async {
        loop {
            let all = DaemonSets::read().await?;
            match state(name, &all) {
                OwnDaemonSet::OthersPresent(names) => others = Some(names),
                state => return Ok(state),
            }
            tokio::time::sleep(RETRY).await;
        }
    };
    if let Ok(answer) = tokio::time::timeout(ANSWER, read).await {
        return answer;
    }
    others.map(OwnDaemonSet::OthersPresent).ok_or_else(|| format!("no answer within {} s", ANSWER.as_secs()))
}

fn state(name: &str, all: &DaemonSets) -> OwnDaemonSet {
    let agents = all.agents();
    // The own DaemonSet counts whatever the account of its pods is.
    if all.has(name) {
        OwnDaemonSet::Present
    } else if agents.is_empty() {
        OwnDaemonSet::Deleted
    } else {
        OwnDaemonSet::OthersPresent(agents.join(", "))
    }
}

/// Why the uninstaller must not run in this pod: an agent may start on this node again.
pub(crate) async fn returning() -> Option<String> {
    let silent = || Err(format!("no answer within {} s", ANSWER.as_secs()));
    refusal(&tokio::time::timeout(ANSWER, DaemonSets::read()).await.unwrap_or_else(|_| silent()))
}

fn refusal(all: &Result<DaemonSets, String>) -> Option<String> {
    match all {
        Ok(all) if all.agents().is_empty() || all.are_released() => None,
        Ok(all) => Some(format!(
            "these DaemonSets exist, and their agents would install everything again: {}. Delete them first \
             (docs/uninstall.md), release this node alone (docs/pilot.md), or continue by --force",
            all.agents().join(", ")
        )),
        Err(why) => Some(format!(
            "the agents' DaemonSets may still exist ({why}): apply all of manifests/uninstall, check that this node reaches \
             the API server, or continue by --force"
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
