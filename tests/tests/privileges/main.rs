//! Each container of ours works under exactly the privileges that its manifest gives it, and needs every one of them.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, its helper functions too")]

mod agent;
mod node;
mod uninstaller;
