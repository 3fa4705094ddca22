//! One attachment of a pod on this node, for every plugin: its record and its network, which must never contradict each other.
//!
//! ```text
//!   ADD  reserve ─▶ make (what the plugin desires) ─▶ commit
//!   DEL  take_down: the record, else the kernel, says what there is ─▶ release ─▶ cooldown
//!   GC   the same for all that are dead                          Report ─▶ agent, or a file
//! ```
//!
//! Plugins differ in what they build; what was built is found, removed and explained here.

mod check;
mod extra;
pub mod failure;
mod follow_up;
mod gc;
mod make;
mod node;
mod report;
mod reserve;
mod state_dir;
mod take_down;

pub use check::{drifted, in_sync, vanished};
pub use extra::{network_of, open_netns};
pub use failure::code;
pub use follow_up::{DeletionOutcome, FollowUp, forget};
pub use gc::gc;
pub use make::make;
pub use node::{Node, ends, enter, network, observe};
pub use report::{Program, Report};
pub use reserve::{Source, netns_of, pod_of, reserve};
pub use state_dir::STATE_DIR_VARIABLE;
pub use take_down::{del, give_up, take_down};
