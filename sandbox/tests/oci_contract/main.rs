//! The contract of the emulated OCI API: the same cases by Oracle's SDKs for Python and for Go, and by our client. A response
//! that an SDK cannot use is a bug of the emulator; where two clients see different results, one of them is wrong.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod addresses;
mod attachments;
mod client;
mod faults;
#[path = "../sandbox/fixture.rs"]
mod fixture;
mod logins;
mod our_client;
mod reads;
mod regions;
mod restarts;
mod scene;
mod sdk_client;
