//! The command line: the subcommands, the questions they ask the running agent, and what they print.

pub mod bundle;
pub mod command;
pub mod exit;
pub mod query;
pub mod show;
