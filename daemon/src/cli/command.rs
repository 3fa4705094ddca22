//! Parses the command line.

use std::ffi::OsString;

use clap::FromArgMatches as _;
use resident::config::Layers;

use crate::args::{Args, Command, DEFAULT_CONFIG, keys};

/// A parsed command line.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// The subcommand.
    pub command: Command,
    /// The configuration's layers.
    pub layers: Layers,
}

/// Parses the command line; `environment` is kept and read later.
///
/// # Errors
/// Those of clap, which include help and version.
pub fn read(arguments: Vec<OsString>, environment: Vec<(String, String)>) -> Result<Invocation, clap::Error> {
    let (matches, layers) = resident::command_line::read::<Args>(&keys(), DEFAULT_CONFIG, arguments, environment)?;
    let command = match matches.subcommand() {
        Some(_) => Command::from_arg_matches(&matches)?,
        None => Command::Run,
    };
    Ok(Invocation { command, layers })
}
