//! The result of a reconcile, for people (Display) and for metrics and conditions (stable words).

use std::fmt;

use resident::logging::chain;
use vcn::printable;

use crate::decide::Decision;
use crate::error::Error;
use crate::note::Note;

/// The result of one reconcile.
#[derive(Debug)]
#[must_use]
pub struct Report {
    /// Whether to install, which signal decided, and why.
    pub decision: Decision,
    /// The steps that were taken or, if not `applied`, would be.
    pub steps: Vec<String>,
    /// Whether the steps were taken.
    pub applied: bool,
    /// The state of our configuration.
    pub conflist: ConflistState,
    /// What an operator should know.
    pub notes: Vec<Note>,
    /// What failed; everything else was done.
    pub failures: Vec<Error>,
}

/// The state of our configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConflistState {
    /// The decision is not to install.
    #[default]
    NotInstalled,
    /// No address is usable yet, so it is not written yet.
    Waiting,
    /// It is not written: a dry run, or a failure.
    Pending,
    /// It is in place.
    InPlace,
}

vcn::words!(ConflistState: NotInstalled = "not-wanted", Waiting = "waiting", Pending = "pending", InPlace = "in-place");

/// The result in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Another pod network owns the node: nothing was changed.
    Untouched,
    /// Binaries are in place; the configuration follows when an address is usable.
    Waiting,
    /// Binaries and configuration are in place.
    Installed,
    /// A dry run that found something to do.
    Planned,
    /// Something failed; the next reconcile tries again.
    Failed,
}

vcn::words!(
    Status: Untouched = "untouched",
    Waiting = "waiting",
    Installed = "installed",
    Planned = "planned",
    Failed = "failed",
);

impl Report {
    pub(crate) fn new(decision: Decision) -> Self {
        let (steps, notes, failures) = (Vec::new(), Vec::new(), Vec::new());
        Self { decision, steps, applied: false, conflist: ConflistState::NotInstalled, notes, failures }
    }

    pub(crate) fn failed(mut self, error: Error) -> Self {
        self.failures.push(error);
        self
    }

    /// The result in one word.
    #[must_use]
    pub fn status(&self) -> Status {
        if !self.failures.is_empty() {
            Status::Failed
        } else if !self.decision.install {
            Status::Untouched
        } else if !self.applied && !self.steps.is_empty() {
            Status::Planned
        } else if self.conflist == ConflistState::InPlace {
            Status::Installed
        } else {
            Status::Waiting
        }
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
            writeln!(f, "{}: {}", if self.applied { "did" } else { "would" }, printable(step))?;
        }
        for note in &self.notes {
            writeln!(f, "note: {} [{}]", printable(&note.message), note.word())?;
        }
        for failure in &self.failures {
            writeln!(f, "failed: {} [{}]", printable(&chain(failure)), failure.word())?;
        }
        writeln!(f, "configuration: {}", self.conflist)?;
        write!(f, "status: {}", self.status())
    }
}
