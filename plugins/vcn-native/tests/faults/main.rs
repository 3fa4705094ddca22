//! The pod path when the kernel, the disk or the power fails: the real binary under strace, which makes any one of its
//! system calls fail, or kills it there. What is judged is what is left.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may fail by panicking, its helper functions too"
)]

#[path = "../surroundings/crowd.rs"]
#[allow(dead_code, reason = "the surroundings' tests use more of it")]
mod crowd;
mod errors;
mod kill;
#[path = "../pod_path/node.rs"]
#[allow(dead_code, reason = "the pod path's tests use more of it")]
mod node;
mod scene;
mod traced;
