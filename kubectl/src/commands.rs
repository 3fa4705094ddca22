//! The commands, a file each. Each collects an answer as data; `run.rs` prints it.

pub mod explain;
pub mod nettest;
pub mod node;
pub mod status;
pub mod vnics;
