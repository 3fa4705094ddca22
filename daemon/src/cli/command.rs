//! From the command line to what is to be done.

use std::ffi::OsString;

use clap::FromArgMatches as _;
use resident::config::Layers;

use crate::args::{Args, Command, DEFAULT_CONFIG, keys};

/// What is to be done, and what was said of the configuration.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// What to do.
    pub command: Command,
    /// With which configuration.
    pub layers: Layers,
}

/// Reads the command line; `environment` is not looked at but kept.
///
/// # Errors
/// As clap says them; help and version are among them.
pub fn read(arguments: Vec<OsString>, environment: Vec<(String, String)>) -> Result<Invocation, clap::Error> {
    let (matches, layers) = resident::command_line::read::<Args>((&keys(), DEFAULT_CONFIG), arguments, environment)?;
    let command = match matches.subcommand() {
        Some(_) => Command::from_arg_matches(&matches)?,
        None => Command::Run,
    };
    Ok(Invocation { command, layers })
}
