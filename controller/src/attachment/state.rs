//! What one process remembers between two reconciles.

pub mod instance_memory;
pub mod retry_state;
