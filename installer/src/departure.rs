//! Why we are being stopped: to make room for another version of us, or for good. Only then may anything be removed, for a
//! configuration that is missing during an upgrade is a node without pod network. The decision is pure; `ask` brings the
//! API server's answer. Every doubt means that we stay: what is left behind by mistake is removed by the `uninstall`
//! command, what is removed by mistake takes a node down.

mod ask;
#[cfg(test)]
mod tests;

pub use ask::{ask, daemon_sets, meaning};

/// What a generated name ends with: no vowels and nothing that looks like one, so that no word comes of it
/// (k8s.io/apimachinery/pkg/util/rand).
const RANDOM: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// What the API server answers when asked for our own DaemonSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnDaemonSet {
    /// It is there.
    Present {
        /// Somebody has deleted it, and its pods are being stopped (`metadata.deletionTimestamp`).
        deleting: bool,
    },
    /// There is none of that name in our namespace (404).
    NotFound,
    /// Our token is worth nothing any more (401).
    Unauthorized,
    /// We may not ask (403): a missing right, which says nothing about the DaemonSet.
    Forbidden,
    /// No answer, or one that means nothing (time-out, 429, 5xx).
    Unreachable,
}

/// What our end means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// Another of us comes: an upgrade, a downgrade, a restart, a reboot. Everything stays.
    Returning(Reason),
    /// We are not wanted here any more: uninstall.
    Leaving(Reason),
}

/// What told. The words that `word` gives are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The DaemonSet is there.
    DaemonSetPresent,
    /// It is being deleted.
    DaemonSetDeleting,
    /// It is gone.
    DaemonSetGone,
    /// Our token is refused.
    Unauthorized,
    /// We may not ask.
    Forbidden,
    /// Nobody answered.
    Unreachable,
}

/// What our end means, by what the API server answered.
///
/// A refused token is a doubt, although istio-cni takes it for the end of its service account: a token also ends with its
/// pod's object, which a forced deletion takes away at once while the DaemonSet makes the next pod.
#[must_use]
pub const fn departure(answer: OwnDaemonSet) -> Departure {
    use Departure::{Leaving, Returning};
    match answer {
        OwnDaemonSet::Present { deleting: true } => Leaving(Reason::DaemonSetDeleting),
        OwnDaemonSet::Present { deleting: false } => Returning(Reason::DaemonSetPresent),
        OwnDaemonSet::NotFound => Leaving(Reason::DaemonSetGone),
        OwnDaemonSet::Unauthorized => Returning(Reason::Unauthorized),
        OwnDaemonSet::Forbidden => Returning(Reason::Forbidden),
        OwnDaemonSet::Unreachable => Returning(Reason::Unreachable),
    }
}

/// Why an agent may come to this node again and put everything back, for the uninstaller; nothing where its DaemonSet was
/// deleted. `why` is the cause of a doubt.
#[must_use]
pub fn returning(name: &str, answer: OwnDaemonSet, why: Option<&str>) -> Option<String> {
    match departure(answer) {
        Departure::Leaving(_) => None,
        Departure::Returning(Reason::DaemonSetPresent) => Some(format!(
            "the DaemonSet {name} exists, and its agents would put everything back: delete it first \
             (docs/uninstall.md), or uninstall this node alone by --force"
        )),
        Departure::Returning(reason) => Some(format!(
            "whether the DaemonSet {name} still exists is unknown ({}: {}): apply all of manifests/uninstall, check that \
             this node reaches the API server, or go on by --force",
            reason.word(),
            why.unwrap_or("no cause given")
        )),
    }
}

/// The DaemonSet that made a pod: the pod's name without the five characters that the API server put behind it. Not a name
/// of its own in the settings: a DaemonSet that was renamed, and is asked for by its old name, looks deleted.
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
