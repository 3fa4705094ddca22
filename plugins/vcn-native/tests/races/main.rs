//! Many verbs at once, of many pods and of one: every pod works, no address is given twice, and nothing is left at the end.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may fail by panicking, its helper functions too"
)]

mod many;
#[path = "../plugin/node.rs"]
#[expect(dead_code, reason = "the other test program uses more of it")]
mod node;
mod same_key;
