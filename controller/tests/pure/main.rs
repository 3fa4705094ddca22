//! Tests of the controller that need neither an API server nor a kernel.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod profiles;
mod reasons;
