//! Node policies, without input and output: which settings a policy may name, which policy applies to a node, and what the
//! leader and the agents exchange.
//!
//! ```text
//!   NodePolicies of a node ─▶ merge ─▶ NodeItems ─▶ NodeDocument ──channel──▶ agent ─▶ keys, links: what of it is possible here
//!        ▲                     ▲                                                │
//!        │                   keys (table of settings, refusals)                 ▼ apply, compare
//!      status ◀── rollout (controller) ◀──────────channel────────────────── NodeAnswer
//! ```

pub mod answer;
pub mod bounds;
pub mod document;
#[cfg(test)]
mod documents;
pub mod files;
pub mod item;
pub mod keys;
pub mod link_keys;
pub mod links;
pub mod merge;
mod refusal;
pub mod report;
pub mod revision;
pub mod value;
pub mod view;

pub use answer::{AnsweredPolicy, NodeAnswer, PolicyState};
pub use document::{
    Baseline, DesiredHostFile, DesiredHugePages, DesiredLink, DesiredReservations, DesiredSysctl, DocumentMode,
    DocumentPolicy, LeaderTerm, NodeDocument,
};
pub use files::{FileConfirmation, FilesAnswer, FilesState};
pub use item::{Item, LinkOption};
pub use keys::{Key, Scope};
pub use refusal::Refusal;
pub use report::{ItemReport, ItemState};
