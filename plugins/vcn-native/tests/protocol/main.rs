//! The real binary and bad input: whatever it is given, it answers with one error that says what is wrong and what to do
//! next, or does its work; never both, never neither, and never a panic. `docs/errors.md` says when which code is answered.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may fail by panicking, its helper functions too"
)]

mod call;
mod codes;
mod documents;
#[allow(dead_code, reason = "the node of the other test program, of which this one needs a part")]
#[path = "../pod_path/node.rs"]
mod node;
mod previous;
mod refused;
mod streams;
mod variables;
