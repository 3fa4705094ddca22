//! Why the agent is stopped: for a restart or an upgrade, or because its DaemonSet was deleted. Only then may anything be
//! removed: a configuration that is missing during an upgrade is a node without pod network. In doubt everything stays: the
//! `uninstall` command can remove it later.

mod ask;
#[cfg(test)]
mod tests;

pub use ask::{ask, daemon_sets, meaning};

/// A generated name ends with these characters (k8s.io/apimachinery/pkg/util/rand).
const RANDOM: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

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

impl OwnDaemonSet {
    /// Whether the agent is stopped because its DaemonSet was deleted.
    ///
    /// An invalid token is a doubt, although istio-cni takes it for the end of its service account: a token also ends with
    /// its pod's object, which a forced deletion removes at once while the DaemonSet creates the next pod.
    #[must_use]
    pub const fn means_uninstall(self) -> bool {
        matches!(self, Self::Deleting | Self::NotFound)
    }

    /// A stable word for logs.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Present => "daemonset-present",
            Self::Deleting => "daemonset-deleting",
            Self::NotFound => "daemonset-gone",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::Unreachable => "unreachable",
        }
    }
}

/// Why the uninstaller must not run: an agent may start on this node again. `cause` explains a doubt.
#[must_use]
pub fn refusal(name: &str, answer: OwnDaemonSet, cause: Option<&str>) -> Option<String> {
    match answer {
        answer if answer.means_uninstall() => None,
        OwnDaemonSet::Present => Some(format!(
            "the DaemonSet {name} exists, and its agents would install everything again: delete it first \
             (docs/uninstall.md), or uninstall this node alone by --force"
        )),
        doubt => Some(format!(
            "the DaemonSet {name} may still exist ({}: {}): apply all of manifests/uninstall, check that this node reaches \
             the API server, or continue by --force",
            doubt.word(),
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
