//! The reboot of one node: cordon, drain through the eviction API, SOFTRESET by OCI, proof, uncordon.
//!
//! ```text
//!   Waiting ─▶ Cordoning ─▶ Draining ─▶ Resetting ─▶ Proving ─▶ Succeeded, uncordoned
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
mod plan;
#[cfg(test)]
mod tests;
