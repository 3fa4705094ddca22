//! What one process remembers between two reconciles. All of it may be lost.

pub mod failed_attempts;
pub(super) mod instance_memory;
pub mod retry_state;
