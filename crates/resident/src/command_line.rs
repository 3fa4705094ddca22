//! Reads the command line. clap reports typing errors; [`crate::config`] reports wrong values together with those of the
//! environment and of the file.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Parser};

use crate::config::Layers;
use crate::config::keys::{Key, Keys, bare};

/// The variable that names the configuration file; not a key of that file.
pub const CONFIG_FILE: &str = "CONFIG_FILE";

/// Reads the command line of a program whose parser has an option `config` for the file, which is at `default_file` by
/// default; `environment` is only kept.
///
/// # Errors
/// Those of clap, including help and version.
pub fn read<A: Parser>(
    keys: &Keys,
    default_file: &str,
    arguments: Vec<OsString>,
    environment: Vec<(String, String)>,
) -> Result<(ArgMatches, Layers), clap::Error> {
    let untyped = |arg: Arg| match keys.of_command_line().find(|key| arg.get_long() == key.flag().strip_prefix("--")) {
        Some(_) => bare(arg).global(true).value_parser(clap::value_parser!(String)),
        None => arg,
    };
    let matches = match A::command().mut_args(untyped).try_get_matches_from(arguments.clone()) {
        Ok(matches) => matches,
        // With the values that an option may have, which the above does not know.
        Err(error) if !error.use_stderr() => return Err(A::try_parse_from(arguments).err().unwrap_or(error)),
        Err(error) => return Err(error),
    };
    let by_flag = matches.get_one::<PathBuf>("config_file").cloned();
    let in_environment = environment.iter().any(|(name, value)| name == CONFIG_FILE && !value.is_empty());
    let file_is_named = in_environment || matches.value_source("config_file") == Some(ValueSource::CommandLine);
    let file = by_flag.filter(|file| !file.as_os_str().is_empty()).unwrap_or_else(|| default_file.into());
    let flags: BTreeMap<String, String> = keys.of_command_line().filter_map(|key| typed(key, &matches)).collect();
    Ok((matches, Layers { flags, environment, file, file_is_named }))
}

/// The environment; entries that are not UTF-8 cannot be keys and are left out.
pub fn environment() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

fn typed(key: &Key, matches: &ArgMatches) -> Option<(String, String)> {
    let id = key.id();
    if matches.value_source(id) != Some(ValueSource::CommandLine) {
        return None;
    }
    Some((key.name().to_owned(), matches.get_one::<String>(id)?.clone()))
}
