//! The shipped controller against a real API server and the emulated OCI API, with kills, restarts, throttling and delays.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod access;
mod agents;
mod api_faults;
mod at_rest;
mod bundles;
mod captures;
mod chaos;
mod fleet;
mod fleet_scale;
mod in_use;
mod leases;
mod life;
mod network_tests;
mod node_policies;
mod node_pools;
mod node_tasks;
mod operation_pods;
mod paper;
mod plan_command;
mod pod_networks;
mod probe_pods;
mod process;
mod profiles;
mod reboots;
mod scale;
mod scene;
mod size;
mod uninstalled;
mod unreadable;
