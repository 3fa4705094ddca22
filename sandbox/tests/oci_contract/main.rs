//! The contract of the emulated OCI API: the same cases by Oracle's SDKs for Python and for Go, and by our client. What an
//! SDK cannot use is our bug; where two clients see different things, one of them is wrong.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod addresses;
mod attachments;
mod client;
mod faults;
mod logins;
mod oracles;
mod ours;
mod reads;
mod regions;
mod scene;
#[path = "../sandbox/world.rs"]
mod world;
