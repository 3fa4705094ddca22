//! VnicProfiles: a VnicAttachment from each template for each selected node, by label selector or by the node's annotation.
//! What happens to the attachments in OCI is decided elsewhere.
//!
//! ```text
//!   VnicProfiles ─┐            select            claims, removal, rollout
//!   Nodes ────────┼─▶ Observed ──────▶ Selections ──────▶ Plan ─▶ apply: VnicAttachments created, changed, deleted
//!   VnicAttachments ┤                      │                ├──▶ status of each profile
//!   node pools ─────┘                      │                └──▶ events on Nodes and profiles
//!        ▲                                 ▼
//!        └── OCI API: GetInstance ── instances whose Node names a selected node pool
//! ```

pub mod apply;
mod decide;
pub(crate) mod node_pools;
pub mod plan;
pub(crate) mod profiles;
pub(crate) mod report;
pub(crate) mod retry_states;
pub(crate) mod run;
#[cfg(test)]
pub(crate) mod sample;
pub mod select;
