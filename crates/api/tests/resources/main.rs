//! Our custom resources, as a real API server takes, refuses, shows and keeps them.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod bounds;
mod cluster;
mod columns;
mod network_tests;
mod node_policies;
mod node_tasks;
mod policy_files;
mod ratcheting;
mod rules;
mod sample;
mod size;
mod statuses;
