//! What frames the agent's life: its directories, and the uninstall when it is deleted.

pub mod agent;
pub mod directories;
pub mod uninstall_on_delete;
