//! What came of it, for people (Display) and for metrics and conditions (stable words).

use std::error::Error as _;
use std::fmt;

use vcn::printable;

use crate::{Decision, Error, Note, Step};

/// What came of one reconciliation.
#[derive(Debug)]
#[must_use]
pub struct Report {
    /// Whether to install, which signal decided, and why.
    pub decision: Decision,
    /// The steps that were taken or, if not `applied`, would be. Empty when nothing had to change.
    pub steps: Vec<Step>,
    /// Whether the steps were taken.
    pub applied: bool,
    /// How the configuration stands.
    pub conflist: Conflist,
    /// What somebody should know.
    pub notes: Vec<Note>,
    /// What failed; everything else was done nevertheless.
    pub failures: Vec<Error>,
}

/// How our configuration stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflist {
    /// The decision is not to install.
    NotWanted,
    /// No address is usable yet, so it is not written yet.
    Waiting,
    /// It should be written and is not: a dry run, or a failure.
    Pending,
    /// It is there.
    InPlace,
}

/// All of it in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Not our pod network: nothing was touched.
    Untouched,
    /// Binaries are in place; the configuration follows when an address is usable.
    Waiting,
    /// Binaries and configuration are in place.
    Installed,
    /// A dry run that found something to do.
    Planned,
    /// Something failed; another round tries again.
    Failed,
}

impl Report {
    pub(crate) const fn new(decision: Decision) -> Self {
        Self {
            decision,
            steps: Vec::new(),
            applied: false,
            conflist: Conflist::NotWanted,
            notes: Vec::new(),
            failures: Vec::new(),
        }
    }

    pub(crate) fn failed(mut self, error: Error) -> Self {
        self.failures.push(error);
        self
    }

    pub(crate) fn planned(mut self, steps: Vec<Step>) -> Self {
        self.steps = steps;
        self
    }

    /// All of it in one word.
    #[must_use]
    pub fn status(&self) -> Status {
        if !self.failures.is_empty() {
            Status::Failed
        } else if !self.decision.install {
            Status::Untouched
        } else if !self.applied && !self.steps.is_empty() {
            Status::Planned
        } else if self.conflist == Conflist::InPlace {
            Status::Installed
        } else {
            Status::Waiting
        }
    }

    /// Whether anything on the disk was changed.
    #[must_use]
    pub fn changed(&self) -> bool {
        self.applied && !self.steps.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Decision { install, decided_by, against, reason, .. } = &self.decision;
        let reason = printable(reason);
        writeln!(f, "decision: {} ({decided_by}): {reason}", if *install { "install" } else { "leave alone" })?;
        for signal in against {
            writeln!(f, "against: {signal}")?;
        }
        for step in &self.steps {
            writeln!(f, "{}: {}", if self.applied { "did" } else { "would" }, printable(&step.to_string()))?;
        }
        for note in &self.notes {
            writeln!(f, "note: {} [{}]", printable(&note.to_string()), note.word())?;
        }
        for failure in &self.failures {
            writeln!(f, "failed: {} [{}]", printable(&chain(failure)), failure.word())?;
        }
        writeln!(f, "configuration: {}", self.conflist)?;
        write!(f, "status: {}", self.status())
    }
}

impl fmt::Display for Conflist {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotWanted => "not-wanted",
            Self::Waiting => "waiting",
            Self::Pending => "pending",
            Self::InPlace => "in-place",
        })
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Untouched => "untouched",
            Self::Waiting => "waiting",
            Self::Installed => "installed",
            Self::Planned => "planned",
            Self::Failed => "failed",
        })
    }
}

/// An error with its causes.
pub(crate) fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Signal;

    #[test]
    fn control_characters_are_escaped_for_people() {
        let decision = Decision {
            install: false,
            another: false,
            oke: false,
            decided_by: Signal::Nothing,
            against: Vec::new(),
            reason: "\u{1b}[2J10-oci\n.conflist is present".to_owned(),
        };
        let text = Report::new(decision).to_string();
        let first = "decision: leave alone (nothing): \\u{1b}[2J10-oci\\n.conflist is present";
        assert_eq!(text.lines().next(), Some(first));
    }
}
