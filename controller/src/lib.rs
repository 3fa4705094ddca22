//! The controller: attaches the VNICs that custom resources and node annotations request.
//!
//! ```text
//!   VnicAttachment ─┐ watches
//!   VnicProfile ────┼─▶ cluster::store ─▶ profile: VnicAttachments from templates
//!   Node ───────────┘        └─▶ work (queue) ─▶ attachment: observe ─▶ plan (pure) ─▶ apply ─▶ report     per instance
//!   Pods of agents ─▶ fleet: summaries of nodes in memory ─▶ conditions of Nodes, view
//!   NetworkTest ──▶ network_test: pairs ─▶ agents ─▶ verdicts ─▶ status
//!   NodePolicy ───▶ node_policy: rollouts ─▶ documents to agents ─▶ status
//!   NodeTask ─────▶ node_task: one action on nodes ─▶ status
//!   leader: one of several replicas does this; a replica that loses the Lease exits
//! ```
//!
//! It can be killed anywhere: the next leader finds its work in OCI by names and tags. An object's status is written for
//! people and is not an input, except for facts that nothing else records.

mod args;
pub mod attachment;
mod cloud;
pub mod cluster;
pub mod fleet;
mod leader;
mod leader_context;
mod malloc;
mod network_test;
mod node_policy;
mod node_task;
mod operations;
mod plan_command;
pub mod profile;
pub mod report;
mod run;
mod settings;
mod status_server;
mod work;

pub use run::{Exit, run};
