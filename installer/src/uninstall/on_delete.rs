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
    Present {
        /// It is being deleted (`metadata.deletionTimestamp`).
        deleting: bool,
    },
    /// It does not exist (404).
    NotFound,
    /// The token is not valid any more (401).
    Unauthorized,
    /// The right to read it is missing (403).
    Forbidden,
    /// No answer, or none that can be used (time-out, 429, 5xx).
    Unreachable,
}

/// What a shutdown is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// An upgrade, a restart or a reboot: everything stays.
    Restart(Reason),
    /// The DaemonSet was deleted.
    Uninstall(Reason),
}

/// What decided. The words of `word` are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The DaemonSet exists.
    DaemonSetPresent,
    /// It is being deleted.
    DaemonSetDeleting,
    /// It is gone.
    DaemonSetGone,
    /// The token is not valid any more.
    Unauthorized,
    /// The right to read it is missing.
    Forbidden,
    /// The API server did not answer.
    Unreachable,
}

/// What a shutdown is for, by the API server's answer.
///
/// An invalid token is a doubt, although istio-cni takes it for the end of its service account: a token also ends with its
/// pod's object, which a forced deletion removes at once while the DaemonSet creates the next pod.
#[must_use]
pub const fn shutdown(answer: OwnDaemonSet) -> Shutdown {
    use Shutdown::{Restart, Uninstall};
    match answer {
        OwnDaemonSet::Present { deleting: true } => Uninstall(Reason::DaemonSetDeleting),
        OwnDaemonSet::Present { deleting: false } => Restart(Reason::DaemonSetPresent),
        OwnDaemonSet::NotFound => Uninstall(Reason::DaemonSetGone),
        OwnDaemonSet::Unauthorized => Restart(Reason::Unauthorized),
        OwnDaemonSet::Forbidden => Restart(Reason::Forbidden),
        OwnDaemonSet::Unreachable => Restart(Reason::Unreachable),
    }
}

/// Why the uninstaller must not run: an agent may start on this node again. `cause` explains a doubt.
#[must_use]
pub fn refusal(name: &str, answer: OwnDaemonSet, cause: Option<&str>) -> Option<String> {
    match shutdown(answer) {
        Shutdown::Uninstall(_) => None,
        Shutdown::Restart(Reason::DaemonSetPresent) => Some(format!(
            "the DaemonSet {name} exists, and its agents would install everything again: delete it first \
             (docs/uninstall.md), or uninstall this node alone by --force"
        )),
        Shutdown::Restart(reason) => Some(format!(
            "the DaemonSet {name} may still exist ({}: {}): apply all of manifests/uninstall, check that this node reaches \
             the API server, or continue by --force",
            reason.word(),
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

impl Reason {
    /// A stable word for logs.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::DaemonSetPresent => "daemonset-present",
            Self::DaemonSetDeleting => "daemonset-deleting",
            Self::DaemonSetGone => "daemonset-gone",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::Unreachable => "unreachable",
        }
    }
}
