//! What frames the agent's life: its directories, and the uninstall when it is deleted.

pub mod agent;
pub mod departure;
pub mod directories;
