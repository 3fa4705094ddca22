//! The command line: the subcommands, their requests to the running agent, and what they print.

pub mod bundle;
pub mod command;
pub mod exit;
mod offline;
pub mod query;
pub mod show;
