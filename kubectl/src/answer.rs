//! What a command returns: data, text, and an exit status.

use std::process::ExitCode;

use command::page::Page;
use serde::Serialize;

/// The exit status, for scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// All that is shown is healthy.
    Fine = 0,
    /// Something is not healthy or not known, or the command failed.
    Problem = 1,
    /// 2: the command line is not valid.
    Usage = 2,
    /// A test whose result names neither success nor cause; a bundle that lacks something.
    Undecided = 3,
}

/// What a command found: as data for programs, and as text for people.
pub trait Answer: Serialize {
    /// The exit status that follows from the answer.
    fn exit(&self) -> Exit;
    /// Writes the answer as text for people.
    fn show(&self, page: &mut Page, style: Style);
}

/// How the text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Whether nothing is shortened.
    pub wide: bool,
    /// The time, in milliseconds since 1970.
    pub now_unix_millis: u64,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
