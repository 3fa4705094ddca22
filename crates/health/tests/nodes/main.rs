//! Collectors, rules and the engine on recorded nodes, and on this machine.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may fail by panicking, its helper functions too"
)]

mod accelerated;
mod dcgm;
mod devices;
mod engine;
mod faults;
mod hardware_faults;
mod kernel_messages;
mod node;
mod verdicts;
