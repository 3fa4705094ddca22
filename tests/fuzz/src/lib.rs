//! Each of our readers of bytes that another program wrote, as a function of bytes: a fuzz target. A target
//! panics when what it calls panics, hangs, or answers something that it must never answer.
//!
//! ```text
//!   corpus/<target>/<what it is>  ─┬─▶ tests.rs               `make test`: the corpus, and each beginning of it
//!   seeds written by our own code ─┘
//!                                  └─▶ bin/oke-fuzz.rs        `make fuzz`: libFuzzer, guided by coverage, 10^7 inputs
//! ```
//!
//! An input that broke something is added to the corpus under the name of what it broke, so that `make test` keeps it.

#![expect(clippy::panic, reason = "a panic is how a target tells what it found")]

pub mod corpus;
pub mod targets;

pub use targets::{Target, all, named};

#[cfg(test)]
mod tests;
