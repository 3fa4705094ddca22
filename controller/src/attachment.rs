//! VnicAttachments and what the cloud has for them, instance by instance.
//!
//! ```text
//!   store ─▶ objects ─────┐                              ┌─▶ apply ─▶ cloud, finalizers
//!   cloud ─▶ observed ────┼─▶ plan (pure): steps, verdicts ─▶ status, events
//!   OKE ─▶ pod_network ───┘
//! ```
//!
//! A VNIC is ours by its marks (`mark`), never by what a status says. Before anything is attached, what the instance has is
//! listed; a finalizer stands before and goes last; a request that is sent twice carries the same token.

pub mod apply;
pub mod cache;
pub mod failed_attempts;
pub mod forgotten;
pub mod mark;
mod memory;
pub mod objects;
pub mod observed;
pub mod pace;
pub mod plan;
pub mod pod_network;
pub mod refusal;
pub mod retry_state;
#[cfg(test)]
pub(crate) mod sample;
pub mod status;
pub mod step;
pub mod sweep;
#[cfg(test)]
mod tests;
pub mod tidings;
pub mod verdict;
pub mod worker;
pub mod writers;
