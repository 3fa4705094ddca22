//! VnicProfiles: a VnicAttachment of each template for each node that a profile is for, by its selector or by the node's
//! annotation. What the attachments then become in the cloud is not decided here.
//!
//! ```text
//!   VnicProfiles ─┐            select            claims, removal, rollout
//!   Nodes ────────┼─▶ Observed ──────▶ Selections ──────▶ Plan ─▶ apply: VnicAttachments made, changed, deleted
//!   VnicAttachments ┘                                       ├──▶ status of each profile
//!                                                           └──▶ events on Nodes and profiles
//! ```

pub mod apply;
pub mod changes;
pub mod claims;
mod decide;
pub mod failures;
pub mod from_template;
pub mod observed;
pub mod plan;
pub mod problems;
pub mod removal;
pub mod retry_states;
pub mod rollout;
pub mod run;
#[cfg(test)]
pub(crate) mod sample;
pub mod selection;
pub mod state;
pub mod status;
pub mod step;
