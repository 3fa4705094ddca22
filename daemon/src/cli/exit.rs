//! The exit status of the program, whichever subcommand it ran.

use std::process::ExitCode;

/// How it ended, for scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Fine.
    Fine = 0,
    /// The node is not ready, or what was asked for failed.
    Not = 1,
    /// Called or configured wrongly.
    Usage = 2,
    /// The agent is not running.
    NotRunning = 3,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
