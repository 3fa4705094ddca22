//! Extra interfaces by the real binary on a real kernel, judged by packets and by what is left.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may fail by panicking, its helper functions too"
)]

mod failures;
mod hostile;
mod killed;
mod packets;
mod reference;
mod refused;
mod verbs;
mod world;
