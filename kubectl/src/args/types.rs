//! What the arguments of several commands share: the output format, and names that become part of a path.

use clap::ValueEnum;

use crate::ends::is_name;

/// The output format.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Output {
    /// Output for people (table, wide) or for programs (json, yaml)
    #[arg(short = 'o', long = "output", value_enum, default_value = "table", value_name = "FORMAT")]
    pub format: Format,
}

impl Default for Output {
    fn default() -> Self {
        Self { format: Format::Table }
    }
}

/// An output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Columns and sentences.
    Table,
    /// The same with more columns and nothing shortened.
    Wide,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// It becomes part of a path.
pub(crate) fn object_name(text: &str) -> Result<String, String> {
    let is_valid = is_name(text).then(|| text.to_owned());
    is_valid.ok_or_else(|| "an object's name has lower-case letters, digits and '-'".to_owned())
}

/// It becomes part of a path.
pub(crate) fn node_name(text: &str) -> Result<String, String> {
    let is_valid = is_name(text).then(|| text.to_owned());
    is_valid
        .ok_or_else(|| "a Node's name has lower-case letters, digits, '-' and '.', and begins with no '.'".to_owned())
}
