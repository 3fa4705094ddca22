//! What frames the agent's life: its directories, a changed configuration file, and the uninstall when it is deleted.

pub mod departure;
pub mod directories;
pub mod reload;
