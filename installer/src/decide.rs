//! Whether our pod network owns this node, by signals and by the state of the node.

mod decision;
mod pods;

pub use decision::Decision;
pub(crate) use decision::{NodeState, decide, oke_cni};
pub use pods::pods;
pub(crate) use pods::{ForeignPods, foreign_pods, has_our_alias, is_of_our_pod, kernel_shows};
