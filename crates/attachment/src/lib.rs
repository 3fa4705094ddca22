//! One attachment of a pod on this node, for every plugin: its record and its network, which must never contradict each other.
//!
//! ```text
//!   add   reserve ─▶ build (what the plugin desires) ─▶ commit
//!   end   the record, else the kernel, says what there is ─▶ taken down ─▶ release ─▶ cooldown
//!   DEL, GC, a failed ADD, the agent: the same end               Report ─▶ agent, or a file
//! ```
//!
//! Plugins differ in what they build; what was built is found, removed and explained here. Both return values, which plugins and
//! agent translate.

mod add;
mod check;
mod end;
mod extra;
pub mod failure;
mod follow_up;
mod gc;
mod make;
mod node;
mod report;
mod reserve;
mod state_dir;

pub use add::{Added, Addition, AddressProblem, BuildFailure, Built, add};
pub use check::{drifted, in_sync, vanished};
pub use end::{Access, Ended, del, end, give_up, link_missing};
pub use extra::{network_of, open_netns};
pub use failure::code;
pub use follow_up::FollowUp;
pub use gc::gc;
pub use make::make;
pub use node::{Node, ends, enter, mtu, network, network_on, observe};
pub use report::{Program, Report};
pub use reserve::{netns_of, pod_of};
pub use state_dir::STATE_DIR_VARIABLE;
