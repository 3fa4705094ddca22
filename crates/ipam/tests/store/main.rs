//! The state files: parallel writers, reboots, damage, full and read-only disks.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may fail by panicking, its helper functions too"
)]

mod damage;
mod disk;
mod lost;
mod node;
mod together;
