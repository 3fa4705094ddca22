//! wip
mod fabric;
mod subnet;
pub use fabric::*;
pub use subnet::Subnet;
