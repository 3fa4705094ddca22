//! Promise P2: what is not ours is left alone. On a host crowded with other people's things each verb leaves them as they
//! were, byte for byte and in their order.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may fail by panicking, its helper functions too"
)]

mod crowd;
mod dump;
#[path = "../pod_path/node.rs"]
#[allow(dead_code, reason = "the pod path's tests use more of it")]
mod node;
mod verbs;
