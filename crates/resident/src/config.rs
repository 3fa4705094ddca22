//! The configuration: merges values from four places into settings, or reports everything that is wrong with them at once.
//!
//! ```text
//!   flags ───────────────┐
//!   environment ─────────┼─▶ Values (key → value, origin) ─▶ Options ─▶ Settings
//!   file (KEY=value) ────┤        └─▶ Problems: every wrong key and value, with the nearest right one
//!   defaults ────────────┘
//! ```
//!
//! There is one list of keys, the options of a program ([`ProgramSettings::Options`]): flags, environment, file,
//! `config --explain` and the table in docs/ are made from it.

pub mod file;
pub mod keys;
pub mod problem;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args as _, FromArgMatches as _};

use keys::{Key, Keys};
pub use problem::{Place, Problem};

/// Settings that are made of options.
pub trait ProgramSettings: Sized {
    /// Everything that can be set, as typed.
    type Options: clap::Args;
    /// Why options make no settings.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Checks options as typed.
    ///
    /// # Errors
    /// When an option is not valid, by itself or with others; the message names its flag.
    fn from_options(options: Self::Options) -> Result<Self, Self::Error>;
}

/// Why values make no settings.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The values outside of the file, and where the file is. A process's flags and environment do not change.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    /// By key, as typed.
    pub flags: BTreeMap<String, String>,
    /// All of it, other programs' variables included.
    pub environment: Vec<(String, String)>,
    /// Where the file is.
    pub file: PathBuf,
    /// Whether the file was requested: then it must be there.
    pub file_is_named: bool,
}

/// The value of a key, and where it was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenValue {
    /// The value as it was typed.
    pub value: String,
    /// The place with the highest precedence that sets the key.
    pub place: Place,
}

/// The keys that are set.
pub type Values = BTreeMap<String, GivenValue>;

/// The configuration as far as it is right, and what is wrong with the rest.
#[derive(Debug)]
pub struct Read {
    /// The values that are valid, by key.
    pub values: Values,
    /// What is wrong with the others.
    pub problems: Vec<Problem>,
    /// Whether there is a file.
    pub has_file: bool,
}

impl Layers {
    /// Reads the file and puts the layers on top of each other.
    pub fn read(&self, keys: &Keys) -> Read {
        let text = file::read(&self.file);
        let has_file = !text.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
        let text = if has_file || self.file_is_named { text } else { Ok(String::new()) };
        let mut read = Read { values: Values::new(), problems: Vec::new(), has_file };
        match text {
            Ok(text) => {
                let (given, problems) = file::parse(&self.file, &text);
                read.problems.extend(problems);
                read.take(keys, given);
            }
            Err(error) => {
                let text = format!("it cannot be read: {error}");
                read.problems.push(Problem::new(Place::File { path: self.file.clone(), line: 0 }, "", text));
            }
        }
        let given = keys.in_environment(&self.environment, &mut read.problems);
        read.take(keys, given);
        let typed =
            |(key, value): (&String, &String)| (key.clone(), GivenValue { value: value.clone(), place: Place::Flag });
        read.take(keys, self.flags.iter().map(typed).collect());
        read
    }
}

/// Reads a file alone, without flags and environment.
pub fn read_file(keys: &Keys, path: &Path) -> Read {
    Layers { file: path.to_owned(), file_is_named: true, ..Layers::default() }.read(keys)
}

impl Read {
    /// The settings, or everything that is wrong.
    ///
    /// # Errors
    /// When anything is wrong, whichever layer would have won.
    pub fn settings<S: ProgramSettings>(self, keys: &Keys) -> Result<S, Vec<Problem>> {
        let Self { values, mut problems, .. } = self;
        match settings(keys, &values) {
            Ok(settings) if problems.is_empty() => return Ok(settings),
            Ok(_) => {}
            Err(error) => {
                let before = problems.len();
                problems.extend(blame::<S>(keys, &values).map(|(_, problem)| problem));
                if problems.len() == before {
                    // Right by themselves, wrong together.
                    problems.push(Problem::new(Place::Together, "", crate::logging::chain(error.as_ref())));
                }
            }
        }
        Err(problems)
    }

    /// The settings without what is wrong: for who must answer whatever the configuration says.
    pub fn settings_anyway<S: ProgramSettings>(&self, keys: &Keys) -> Option<S> {
        let mut values = self.values.clone();
        for (key, _) in blame::<S>(keys, &self.values) {
            values.remove(&key);
        }
        settings(keys, &values).or_else(|_| settings(keys, &Values::new())).ok()
    }

    /// Adds a stronger layer: its valid values. An empty value sets nothing: manifests leave some empty.
    fn take(&mut self, keys: &Keys, layer: Vec<(String, GivenValue)>) {
        for (name, given) in layer {
            match keys.find(&name).filter(|key| given.place == Place::Flag || !key.is_for_tests()) {
                None => {
                    let nearest = keys.nearest(&name);
                    let problem = Problem::new(given.place, name, "is not a key").instead(nearest);
                    self.problems.push(problem);
                }
                Some(_) if given.value.is_empty() && given.place != Place::Flag => {}
                // On the command line it overrides weaker layers.
                Some(key) if given.value.is_empty() && key.default().is_none() && key.values().is_empty() => {
                    self.values.remove(&name);
                }
                Some(key) => match key.check(&given.value) {
                    Ok(()) => drop(self.values.insert(name, given)),
                    Err((text, nearest)) => self.problems.push(Problem::new(given.place, name, text).instead(nearest)),
                },
            }
        }
    }
}

/// The settings of values that are each right as text.
///
/// # Errors
/// When a value is not valid.
pub fn settings<S: ProgramSettings>(keys: &Keys, values: &Values) -> Result<S, BoxError> {
    let known = |(name, given): (&String, &GivenValue)| Some(keys.find(name)?.argument(&given.value));
    let arguments: Vec<OsString> = values.iter().filter_map(known).collect();
    let command = S::Options::augment_args(clap::Command::new("settings")).no_binary_name(true).mut_args(keys::bare);
    let options = command.try_get_matches_from(arguments).and_then(|matches| S::Options::from_arg_matches(&matches));
    Ok(S::from_options(options?)?)
}

/// Which values make no sense by themselves.
fn blame<'a, S: ProgramSettings>(
    keys: &'a Keys,
    values: &'a Values,
) -> impl Iterator<Item = (String, Problem)> + use<'a, S> {
    values.iter().filter_map(move |(name, given)| {
        let alone = Values::from([(name.clone(), given.clone())]);
        let error = settings::<S>(keys, &alone).err()?;
        let flag = keys.find(name).map(Key::flag).unwrap_or_default();
        // The key is named already.
        let text = crate::logging::chain(error.as_ref()).replace(&format!("{flag} is "), "is ");
        Some((name.clone(), Problem::new(given.place.clone(), name.clone(), text)))
    })
}
