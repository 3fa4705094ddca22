//! Parses the command line.

use std::ffi::OsString;

use clap::FromArgMatches as _;
use resident::config::Layers;

use crate::args::{Args, Command, DEFAULT_CONFIG, keys};

#[derive(Clone, Debug)]
pub(crate) struct Invocation {
    pub command: Command,
    pub layers: Layers,
}

/// Parses the command line; `environment` is kept and read later.
/// Errors of clap include help and version.
pub(crate) fn read(arguments: Vec<OsString>, environment: Vec<(String, String)>) -> Result<Invocation, clap::Error> {
    let (matches, layers) = resident::command_line::read::<Args>(&keys(), DEFAULT_CONFIG, arguments, environment)?;
    let command = match matches.subcommand() {
        Some(_) => Command::from_arg_matches(&matches)?,
        None => Command::Run,
    };
    Ok(Invocation { command, layers })
}
