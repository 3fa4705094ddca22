//! What one process remembers between two reconciles.

pub(crate) mod instance_memory;
pub(crate) mod retry_state;
