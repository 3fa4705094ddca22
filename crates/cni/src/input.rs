//! All that a runtime gives a plugin: variables of the environment, and the configuration on stdin. Each part is parsed into a
//! type here, or refused with a message that names it.

pub(crate) mod args;
pub(crate) mod config;
pub(crate) mod environment;
pub(crate) mod field;
pub(crate) mod prev_result;
pub(crate) mod requested;
pub(crate) mod stdin;
