//! The sandbox as its users have it: nodes, fabric, containers, the program. One binary, because linking
//! dominates; the tests that need 802.1Q are run by the guest as well.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod bare_metal;
mod container;
mod faults;
mod fixture;
mod hotplug;
mod isolation;
mod nodes;
mod reachability;
