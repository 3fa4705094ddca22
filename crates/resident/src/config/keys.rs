//! The list of keys, read off a program's options.

use std::ffi::OsString;

use clap::builder::{BoolishValueParser, Resettable};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction};

use super::{GivenValue, Place, Problem};

/// Every key of a program.
#[derive(Clone, Debug)]
pub struct Keys(Vec<Key>);

/// Something that can be set.
#[derive(Clone, Debug)]
pub struct Key {
    name: String,
    arg: Arg,
}

impl Keys {
    /// Those of these options: every one that names a variable.
    pub fn of<O: clap::Args>() -> Self {
        let command = O::augment_args(clap::Command::new("keys"));
        let key = |arg: &Arg| {
            let name = arg.get_env()?.to_str()?.to_owned();
            Some(Key { name, arg: bare(arg.clone()) })
        };
        Self(command.get_arguments().filter_map(key).collect())
    }

    /// In the order of `--help`, without those for tests.
    pub fn iter(&self) -> impl Iterator<Item = &Key> {
        self.0.iter().filter(|key| !key.is_for_tests())
    }

    /// All that the command line knows.
    pub(crate) fn of_command_line(&self) -> impl Iterator<Item = &Key> {
        self.0.iter()
    }

    /// The key of this name.
    pub fn find(&self, name: &str) -> Option<&Key> {
        self.0.iter().find(|key| key.name == name)
    }

    /// The key that a wrong name may mean.
    pub fn nearest(&self, name: &str) -> Option<String> {
        let name = normal(name);
        let far = |key: &Key| distance(&name, &key.name);
        let nearest = self.iter().min_by_key(|key| far(key))?;
        (far(nearest) <= (name.len() / 3).max(2)).then(|| nearest.name.clone())
    }

    /// Keys that could be misspellings of each other. A program that knows only one of two refuses the other
    /// ([`Self::in_environment`]), so a release that adds such a key cannot share a manifest with the previous one.
    pub fn alike(&self) -> Vec<(&str, &str)> {
        let names: Vec<&str> = self.iter().map(Key::name).collect();
        let behind = |at: usize| names.iter().skip(at + 1).copied();
        let alike = |one: &str, other: &str| distance(one, other) <= slip(one).max(slip(other));
        let pairs = names.iter().enumerate().flat_map(|(at, one)| behind(at).map(move |other| (*one, other)));
        pairs.filter(|(one, other)| alike(one, other)).collect()
    }

    /// Reads an environment. Other programs have variables too, so only a name very close to a key counts as a misspelled
    /// key.
    pub fn in_environment(
        &self,
        environment: &[(String, String)],
        wrong: &mut Vec<Problem>,
    ) -> Vec<(String, GivenValue)> {
        let mut given = Vec::new();
        for (name, value) in environment {
            if self.find(name).is_some() {
                given.push((name.clone(), GivenValue { value: value.clone(), place: Place::Environment }));
            } else if let Some(key) = self.iter().find(|key| distance(name, &key.name) <= slip(name)) {
                let problem = Problem::new(Place::Environment, name, "is not a key").instead(Some(key.name.clone()));
                wrong.push(problem);
            }
        }
        given
    }
}

impl Key {
    /// As it is called in the file and in the environment.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether only the command line may set it: a hidden option is for tests, and no configuration of a node has it.
    pub fn is_for_tests(&self) -> bool {
        self.arg.is_hide_set()
    }

    /// As clap calls it.
    pub(crate) fn id(&self) -> &str {
        self.arg.get_id().as_str()
    }

    /// As it is called on the command line.
    pub fn flag(&self) -> String {
        format!("--{}", self.arg.get_long().unwrap_or_default())
    }

    /// What its values are: `SECONDS`, `DIR`, …
    pub fn unit(&self) -> String {
        match self.arg.get_value_names().and_then(<[_]>::first) {
            _ if self.is_switch() => "true|false".into(),
            Some(name) => name.to_string(),
            None => "TEXT".into(),
        }
    }

    /// The values that it may have, where they can be counted.
    pub fn values(&self) -> Vec<String> {
        if self.is_switch() {
            return vec!["true".into(), "false".into()];
        }
        self.arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect()
    }

    /// Its value when no place sets it.
    pub fn default(&self) -> Option<String> {
        let default = self.arg.get_default_values().first().map(|value| value.to_string_lossy().into_owned());
        default.or_else(|| self.is_switch().then(|| "false".to_owned()))
    }

    /// What the key does, on one line.
    pub fn meaning(&self) -> String {
        let help = self.arg.get_long_help().or_else(|| self.arg.get_help()).map(ToString::to_string);
        help.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// The key and a value as one argument of the command line.
    pub fn argument(&self, value: &str) -> OsString {
        format!("{}={value}", self.flag()).into()
    }

    /// Whether a value is one.
    ///
    /// # Errors
    /// What is wrong with it, and what may have been meant.
    pub fn check(&self, value: &str) -> Result<(), (String, Option<String>)> {
        let command = clap::Command::new("key").no_binary_name(true).disable_help_flag(true).arg(self.arg.clone());
        let Err(error) = command.try_get_matches_from([self.argument(value)]) else { return Ok(()) };
        let values = self.values();
        if !values.is_empty() {
            let suggested = match error.get(ContextKind::SuggestedValue) {
                Some(ContextValue::String(suggested)) => Some(suggested.clone()),
                _ => values.iter().find(|one| distance(&value.to_lowercase(), one) <= 2).cloned(),
            };
            return Err((format!("is {value:?}, which is none of {}", values.join(", ")), suggested));
        }
        let cause = std::error::Error::source(&error).map_or_else(String::new, |cause| format!(": {cause}"));
        match error.kind() {
            ErrorKind::ValueValidation | ErrorKind::InvalidValue => Err((format!("is {value:?}{cause}"), None)),
            _ => Err((format!("cannot be {value:?}{cause}"), None)),
        }
    }

    fn is_switch(&self) -> bool {
        self.arg.get_num_args().is_some_and(|range| range.min_values() == 0)
    }
}

/// An option that reads nothing but its argument. A switch may also have a value.
pub(crate) fn bare(arg: Arg) -> Arg {
    let arg = arg.env(Resettable::Reset);
    match arg.get_action() {
        ArgAction::SetTrue => arg
            .action(ArgAction::Set)
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .default_value("false")
            .value_parser(BoolishValueParser::new()),
        _ => arg,
    }
}

/// A name in the form of a key: the most likely errors are case and hyphens.
fn normal(name: &str) -> String {
    name.trim_start_matches('-').replace('-', "_").to_uppercase()
}

fn distance(one: &str, other: &str) -> usize {
    strsim::osa_distance(one, other)
}

/// How many typing errors a name of the environment may have and still count as one of our keys.
fn slip(name: &str) -> usize {
    if name.len() < 8 { 1 } else { 2 }
}
