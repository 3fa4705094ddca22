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
mod decide;
pub mod plan;
pub mod report;
pub mod retry_states;
pub mod run;
#[cfg(test)]
pub(crate) mod sample;
pub mod select;
