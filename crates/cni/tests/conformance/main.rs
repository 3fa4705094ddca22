//! Does the crate keep to the CNI specification? Each file is one promise about it.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail by panicking, its helper functions too"
)]

mod call;
mod configuration;
mod environment;
mod interop;
mod noop;
mod previous;
mod process;
mod results;
mod verbs;
