//! Whether our pod network owns this node, by signals and by the state of the node.

mod decision;
mod foreign_pods;
mod own_pods;
mod signals;
mod statements;

pub use decision::Decision;
pub(crate) use decision::{NodeState, decide, oke_cni};
pub(crate) use foreign_pods::{ForeignPods, foreign_pods, kernel_shows};
pub use own_pods::pods;
pub(crate) use own_pods::{has_our_alias, is_of_our_pod};
pub(crate) use signals::OKE_CONFLIST;
pub use signals::{METADATA_KEY, OKE_DAEMONSET, PodNetwork, Presence, Signal, SignalOptions, Signals};
