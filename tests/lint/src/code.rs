//! What every Rust file keeps to.

pub mod exceptions;
pub mod functions;
pub mod headers;
