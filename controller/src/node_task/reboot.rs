//! The reboot of one node: cordon, drain through the eviction API, SOFTRESET by OCI, proof, uncordon.
//!
//! ```text
//!   Started ─▶ Cordoning ─▶ Draining ─▶ Resetting ─▶ Proving ─▶ Succeeded, uncordoned
//!      │           │            │           │           └──────▶ NotProven after 30 min (bare metal 45), still cordoned
//!      ▼           └────────────┴───────────┴──────────────────▶ failed, skipped or canceled: uncordoned, not reset
//!   skipped
//! ```
//!
//! Each step is in the task's status before it has an effect. Only Resetting sends the reset, and always with the same retry token,
//! so a leader that finds the step sends it again, and OCI carries it out once.

mod cordon;
mod drain;
mod evict;
mod facts;
mod marks;
mod observe;
mod plan;
mod reset;
mod run;
#[cfg(test)]
mod tests;

pub(super) use run::{advance, undo};
