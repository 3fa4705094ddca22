//! The real binary on a real kernel. `races` is a program of its own, because it uses all processors.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may fail by panicking, its helper functions too"
)]

mod faults;
mod node;
mod pod_path;
mod protocol;
mod surroundings;
