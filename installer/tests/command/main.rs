//! The command, run as an operator and a DaemonSet run it, on directories of its own.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "in a test it is the assertion"
)]

mod chained;
mod disk;
mod install;
mod kill;
mod left;
mod node;
mod others;
mod takeover;
mod uninstall;
mod war;
