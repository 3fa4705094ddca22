//! The exit status of the program, the same for all subcommands.

use std::process::ExitCode;

/// The exit status of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0: the command did what it was started for.
    Fine = 0,
    /// The node is not ready, or the command failed.
    Not = 1,
    /// The arguments or the configuration are invalid.
    Usage = 2,
    /// The agent is not running.
    NotRunning = 3,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
