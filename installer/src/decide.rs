//! Whether this node's pod network is ours, by signals and by what the node shows.

mod decision;
mod foreign_pods;
mod own_pods;
mod signals;

pub(crate) use decision::oke_cni;
pub use decision::{Decision, NodeState, decide};
pub use foreign_pods::ForeignPods;
pub(crate) use foreign_pods::kernel_shows;
pub use own_pods::pods;
pub use signals::{
    FLANNEL_DAEMONSET, METADATA_KEY, NODE_LABEL, OKE_CONFLIST, OKE_DAEMONSET, PodNetwork, Seen, Signal, Signals,
};
