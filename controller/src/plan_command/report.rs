//! What would be done, for people and for programs.

use std::fmt;

use serde::Serialize;

use crate::profile::plan::{Plan, Step};
use crate::profile::run::GRACE;

/// All of it.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Writes to the API server.
    objects: Vec<Entry>,
    /// Deletions that come when a grace is over, if things stay as they are.
    later: Vec<Entry>,
    /// What is wrong on nodes.
    problems: Vec<Problem>,
}

#[derive(Debug, Serialize)]
struct Entry {
    /// make, change, replace or remove
    step: &'static str,
    /// The VnicAttachment.
    object: String,
    /// In words.
    text: String,
}

#[derive(Debug, Serialize)]
struct Problem {
    node: String,
    reason: &'static str,
    note: String,
}

impl Report {
    pub(super) fn of(plan: &Plan<'_>) -> Self {
        let entry = |step: &Step| Entry { step: step.kind(), object: step.object().to_owned(), text: step.to_string() };
        let problem = |problem: &crate::profile::selection::NodeProblem<'_>| Problem {
            node: problem.node.to_owned(),
            reason: problem.reason,
            note: problem.note.clone(),
        };
        Self {
            objects: plan.steps.iter().map(entry).collect(),
            later: plan.later.iter().map(entry).collect(),
            problems: plan.problems.iter().map(problem).collect(),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.objects.is_empty() {
            writeln!(f, "Nothing would be changed.")?;
        }
        for entry in &self.objects {
            writeln!(f, "{}", entry.text)?;
        }
        if !self.later.is_empty() {
            writeln!(f, "\nWithin {} minutes, if it stays so:", GRACE.as_secs() / 60)?;
        }
        for entry in &self.later {
            writeln!(f, "{}", entry.text)?;
        }
        if !self.problems.is_empty() {
            writeln!(f, "\nTo be seen to:")?;
        }
        for Problem { node, reason, note } in &self.problems {
            writeln!(f, "node {node}: {reason}: {note}")?;
        }
        Ok(())
    }
}
