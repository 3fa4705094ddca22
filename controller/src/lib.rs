//! The controller manager: attaches the VNICs that custom resources and node annotations ask for.
//!
//! ```text
//!   VnicAttachment ─┐ watches
//!   VnicProfile ────┼─▶ cluster::store ─▶ profile: VnicAttachments from templates
//!   Node ───────────┘        └─▶ work (queue) ─▶ attachment: observe ─▶ plan (pure) ─▶ apply ─▶ report     per instance
//!   leader: one of several replicas does this; a replica that loses the lease ends
//! ```
//!
//! It may be killed anywhere: the next process finds in OCI what this one did, by the names and tags that it gave. The status of an
//! object is written for people and is no input, except for facts that nothing else records any more.

pub mod args;
pub mod attachment;
pub mod cloud;
pub mod cluster;
pub mod leader;
pub mod malloc;
pub mod plan_command;
pub mod profile;
pub mod report;
pub mod run;
pub mod settings;
pub mod work;

pub use args::Args;
pub use run::{Exit, run};
