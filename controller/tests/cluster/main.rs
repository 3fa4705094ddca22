//! The controller as it is shipped, against a real API server and the emulated OCI API: what is asked for is there, whoever
//! is killed, restarted, throttled or slow meanwhile.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod at_rest;
mod chaos;
mod crowd;
mod forgotten;
mod kube_controllers;
mod leases;
mod life;
mod paper;
mod pod_networks;
mod process;
mod profiles;
mod scale;
mod scene;
mod uninstalled;
mod weather;
