//! What frames the agent's life: its directories, and the uninstall when it is deleted.

pub(crate) mod agent;
pub(crate) mod directories;
pub(crate) mod uninstall_on_delete;
