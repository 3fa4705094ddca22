//! VnicAttachments and their VNICs in OCI, instance by instance.
//!
//! ```text
//!   cluster::store ─▶ objects ─┐
//!   OCI ─▶ observe ────────────┼─▶ plan (pure): steps, statuses ─▶ apply ─▶ OCI, finalizers
//!   OKE ─▶ pod network ────────┤                        └────────▶ report ─▶ status, Events
//!   state (may be lost) ───────┘           worker drives one instance through this; compartment_scan finds what is missing
//! ```
//!
//! The marks of a VNIC (`mark`) make it our VNIC, not a status that names it. Before a VNIC is attached, the instance's attachments
//! are listed. The finalizer is added first and removed last; a repeated request carries the same token.

pub mod apply;
pub(crate) mod compartment_scan;
pub(crate) mod mark;
pub mod observe;
pub(crate) mod plan;
pub(crate) mod refusal;
pub mod report;
#[cfg(test)]
pub(crate) mod sample;
pub(crate) mod state;
pub(crate) mod step;
#[cfg(test)]
mod tests;
pub(crate) mod worker;
