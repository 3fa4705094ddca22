//! What the command lines of all our resident programs have.

use std::path::PathBuf;

use clap::ValueEnum;
use tracing::Level;

/// What to say of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct ConfigArgs {
    /// Every key with its default, unit and meaning
    #[arg(long, conflicts_with = "check")]
    pub explain: bool,
    /// Whether a file is right, by itself
    #[arg(long, value_name = "FILE")]
    pub check: Option<PathBuf>,
    /// How.
    #[command(flatten)]
    pub output: Output,
}

/// How to say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
pub struct Output {
    /// For people or for programs
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

/// The least that is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// What stops the work.
    Error,
    /// What is not as it should be.
    Warn,
    /// What changed.
    Info,
    /// What was asked and answered.
    Debug,
    /// All there is.
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
