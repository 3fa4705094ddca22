//! The command line: the subcommands, their requests to the running agent, and what they print.

pub(crate) mod bundle;
pub(crate) mod command;
pub(crate) mod exit;
pub(crate) mod query;
pub(crate) mod show;
