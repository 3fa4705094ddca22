//! The result of an uninstallation: steps, what stays, failures; as the command prints it and as programs log it.

use std::fmt;

use resident::logging::chain;
use vcn::printable;

use crate::error::Error;

/// The result of an uninstallation.
#[derive(Debug, Default)]
#[must_use]
pub struct Removal {
    /// Why nothing was done.
    pub refusals: Vec<String>,
    /// The steps that were taken or, if not `applied`, would be.
    pub steps: Vec<String>,
    /// Whether the steps were taken.
    pub applied: bool,
    /// What stays although it has one of our names, because it is foreign or another program uses it.
    pub left: Vec<String>,
    /// What an operator should know.
    pub notes: Vec<String>,
    /// What could not be removed.
    pub failures: Vec<Error>,
}

/// The result in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalStatus {
    /// None of our files and objects is left.
    All,
    /// A dry run: nothing was changed.
    Planned,
    /// Something could not be removed.
    Part,
    /// Refused: nothing was changed.
    Refused,
}

vcn::words!(RemovalStatus: All = "removed", Planned = "planned", Part = "failed", Refused = "refused");

impl Removal {
    /// The result in one word.
    #[must_use]
    pub fn status(&self) -> RemovalStatus {
        match (&self.refusals[..], &self.failures[..], self.applied) {
            ([_, ..], ..) => RemovalStatus::Refused,
            (_, [_, ..], _) => RemovalStatus::Part,
            (.., false) => RemovalStatus::Planned,
            (.., true) => RemovalStatus::All,
        }
    }

    /// Logs it as events of `program`; `next` says what to do about what stays.
    pub fn log(&self, program: &str, next: &str) {
        let event = |word: &str| format!("{program}.{word}");
        for step in &self.steps {
            tracing::info!(event = event("uninstall_step"), step, applied = self.applied);
        }
        for left in &self.left {
            tracing::info!(event = event("uninstall_left"), left);
        }
        for note in &self.notes {
            tracing::warn!(event = event("uninstall_note"), note);
        }
        for why in &self.refusals {
            tracing::warn!(event = event("uninstall_refused"), reason = "refused", why, "everything stays; {next}");
        }
        for failure in &self.failures {
            let (reason, why) = (failure.word(), chain(failure));
            tracing::warn!(event = event("uninstall_failed"), reason, why, "it stays; {next}");
        }
        let ended = match self.status() {
            RemovalStatus::All => "uninstalled",
            RemovalStatus::Planned => "uninstall_planned",
            RemovalStatus::Part => "uninstall_incomplete",
            // Logged for each reason.
            RemovalStatus::Refused => return,
        };
        tracing::info!(event = event(ended), status = %self.status(), steps = self.steps.len());
    }

    /// Takes a step, unless this is a dry run.
    pub(crate) fn step(&mut self, what: String, take: impl FnOnce() -> Result<(), Error>) {
        match if self.applied { take() } else { Ok(()) } {
            Ok(()) => self.steps.push(what),
            Err(error) => self.failures.push(error),
        }
    }
}

impl fmt::Display for Removal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let did = if self.applied { "did" } else { "would" };
        for (word, lines) in
            [("refused", &self.refusals), (did, &self.steps), ("left", &self.left), ("note", &self.notes)]
        {
            for line in lines {
                writeln!(f, "{word}: {}", printable(line))?;
            }
        }
        for failure in &self.failures {
            writeln!(f, "failed: {} [{}]", printable(&chain(failure)), failure.word())?;
        }
        write!(f, "status: {}", self.status())
    }
}
