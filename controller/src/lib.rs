//! The controller manager: makes OCI have the VNICs that custom resources and annotations ask for.
//!
//! ```text
//!   VnicAttachment ─┐ watches          ┌─▶ attachment: read ─▶ plan (pure) ─▶ apply ─▶ status     per instance
//!   Node ───────────┴─▶ store ─▶ work ─┘        └── oci::Cloud ──┘              │
//!                              (queue)                                        events, metrics
//!   lease: one of several does this; who loses it ends
//! ```
//!
//! It may be killed anywhere: what it did is found again in the cloud, by the names and tags it gave. The status of an
//! object is written for people and never believed, but for what cannot be asked any more.

pub mod args;
pub mod attachment;
pub mod board;
pub mod cloud;
#[cfg(test)]
mod documents;
pub mod events;
pub mod heap;
mod kubernetes;
pub mod lead;
pub mod lease;
pub mod metrics;
pub mod plan_command;
pub mod profile;
pub mod run;
pub mod settings;
pub mod store;
pub mod work;

pub use args::Args;
pub use run::{Exit, run};
