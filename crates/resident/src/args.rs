//! Options that the command lines of all resident programs share.

use std::path::PathBuf;

use clap::ValueEnum;
use tracing::Level;

/// What to print about the configuration.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct ConfigArgs {
    /// Every key with its default, unit and meaning
    #[arg(long, conflicts_with = "check")]
    pub explain: bool,
    /// Check a file, independent of flags and environment
    #[arg(long, value_name = "FILE")]
    pub check: Option<PathBuf>,
    /// The output format.
    #[command(flatten)]
    pub output: Output,
}

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
pub struct Output {
    /// Output for people or for programs
    #[arg(short, long, value_enum, default_value = "table", value_name = "FORMAT")]
    pub output: Format,
}

/// An output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Columns and sentences.
    Table,
    /// JSON.
    Json,
}

/// The lowest level that is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// Failures that stop the work.
    Error,
    /// Problems.
    Warn,
    /// Changes.
    Info,
    /// Requests and answers.
    Debug,
    /// Everything.
    Trace,
}

impl From<LogLevel> for Level {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Error => Self::ERROR,
            LogLevel::Warn => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
            LogLevel::Trace => Self::TRACE,
        }
    }
}
