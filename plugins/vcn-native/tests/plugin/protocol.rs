//! The real binary and bad input. Whatever it is given, it answers with one error that says what is wrong and what to do next, or
//! does its work. It never does both or neither, and never panics. `docs/errors.md` says when which code is answered. Documents,
//! variables and versions that every plugin judges alike are in `crates/cni/tests/conformance`; here are what this plugin makes
//! of them, and the streams of a process.

mod call;
mod codes;
mod documents;
mod refused;
mod streams;
mod variables;
