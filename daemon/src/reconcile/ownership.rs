//! Which pod network owns this node.

/// Which pod network a node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ownership {
    Ours,
    /// Another one, or another one is meant.
    Other,
    /// No signal, or contradictory ones.
    Unknown,
}

/// Which pod network owns the node, as the installer sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub(super) ownership: Ownership,
    /// Whether OKE's own CNI may use VNICs here.
    pub(super) oke: bool,
}
