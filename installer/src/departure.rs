//! Why we are being stopped: to make room for another version of us, or for good. Only then may anything be removed, for a
//! configuration that is missing during an upgrade is a node without pod network. Pure; whoever has a Kubernetes client
//! brings the signals. Every doubt means that we stay: what is left behind by mistake is removed by the `uninstall`
//! command, what is removed by mistake takes a node down.

#[cfg(test)]
mod tests;

/// What the API server answers when asked for our own DaemonSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnDaemonSet {
    /// It is there.
    Present {
        /// Somebody has deleted it, and its pods are being stopped (`metadata.deletionTimestamp`).
        deleting: bool,
        /// Whether it still wants a pod on this node, by its node selector and affinity.
        selects_node: Selects,
    },
    /// There is none of that name in our namespace (404).
    NotFound,
    /// Our token is worth nothing any more (401): the service account went with everything else.
    Unauthorized,
    /// We may not ask (403): a missing right, which says nothing about the DaemonSet.
    Forbidden,
    /// No answer, or one that means nothing (time-out, 429, 5xx).
    Unreachable,
}

/// Whether a DaemonSet wants a pod on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selects {
    /// It does.
    Yes,
    /// It does not: the node was relabelled, or the selector changed.
    No,
    /// The node's labels are not known.
    Unknown,
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
    /// The DaemonSet is there and wants us here.
    DaemonSetPresent,
    /// It is there; whether it wants us here is not known.
    NodeUnknown,
    /// It is being deleted.
    DaemonSetDeleting,
    /// It is gone.
    DaemonSetGone,
    /// Our service account is gone.
    Unauthorized,
    /// It no longer selects this node.
    NodeNotSelected,
    /// Nobody could tell.
    Untold,
}

/// What our end means, by what the API server answered last. A 401 counts only where nothing was wrong with the token
/// before: `token_worked` says that an earlier request with it was answered.
#[must_use]
pub fn departure(answer: &OwnDaemonSet, token_worked: bool) -> Departure {
    use Departure::{Leaving, Returning};
    match answer {
        OwnDaemonSet::Present { deleting: true, .. } => Leaving(Reason::DaemonSetDeleting),
        OwnDaemonSet::Present { selects_node: Selects::No, .. } => Leaving(Reason::NodeNotSelected),
        OwnDaemonSet::Present { selects_node: Selects::Yes, .. } => Returning(Reason::DaemonSetPresent),
        OwnDaemonSet::Present { selects_node: Selects::Unknown, .. } => Returning(Reason::NodeUnknown),
        OwnDaemonSet::NotFound => Leaving(Reason::DaemonSetGone),
        OwnDaemonSet::Unauthorized if token_worked => Leaving(Reason::Unauthorized),
        OwnDaemonSet::Unauthorized | OwnDaemonSet::Forbidden | OwnDaemonSet::Unreachable => Returning(Reason::Untold),
    }
}

impl Reason {
    /// A stable word for logs and metrics.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::DaemonSetPresent => "daemonset-present",
            Self::NodeUnknown => "node-unknown",
            Self::DaemonSetDeleting => "daemonset-deleting",
            Self::DaemonSetGone => "daemonset-gone",
            Self::Unauthorized => "unauthorized",
            Self::NodeNotSelected => "node-not-selected",
            Self::Untold => "untold",
        }
    }
}
