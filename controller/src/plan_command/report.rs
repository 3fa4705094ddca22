//! The plan as text for people and as JSON for programs.

use std::fmt;

use serde::Serialize;
use vcn::printable;

use super::cloud::Line;

use crate::profile::plan::step::Step;
use crate::profile::run::GRACE;
use crate::profile::select::selection::NodeProblem;

/// The whole plan.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// Writes to the API server.
    objects: Vec<Entry>,
    /// Deletions after their grace period, if nothing changes.
    later: Vec<Entry>,
    /// Writes that follow when paused VnicProfiles are resumed.
    when_not_paused: Vec<Entry>,
    /// Steps in OCI, object by object, including objects still to be created; and the reason if a step is missing.
    cloud: Vec<Line>,
    /// Whether OCI could be queried about everything.
    cloud_read: bool,
    /// Problems of nodes.
    problems: Vec<Problem>,
}

#[derive(Debug, Serialize)]
struct Entry {
    /// make, change, replace or remove
    step: &'static str,
    /// The VnicAttachment.
    object: String,
    /// The text.
    text: String,
}

#[derive(Debug, Serialize)]
struct Problem {
    node: String,
    reason: &'static str,
    note: String,
}

/// The steps of a plan, by when they are taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlannedSteps<'a> {
    /// At once.
    pub(super) now: &'a [Step],
    /// When a grace period is over.
    pub(super) later: &'a [Step],
    /// When the profiles are no longer paused.
    pub(super) when_not_paused: &'a [Step],
}

impl Report {
    /// Steps now, after the grace period and after a resume.
    pub(super) fn of(
        planned: PlannedSteps<'_>,
        problems: &[NodeProblem<'_>],
        cloud: Vec<Line>,
        cloud_read: bool,
    ) -> Self {
        let entry = |step: &Step| Entry { step: step.kind(), object: step.object().to_owned(), text: step.to_string() };
        let problem = |problem: &NodeProblem<'_>| Problem {
            node: problem.node.to_owned(),
            reason: problem.reason,
            note: problem.note.clone(),
        };
        Self {
            objects: planned.now.iter().map(entry).collect(),
            later: planned.later.iter().map(entry).collect(),
            when_not_paused: planned.when_not_paused.iter().map(entry).collect(),
            cloud,
            cloud_read,
            problems: problems.iter().map(problem).collect(),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changes = !self.objects.is_empty() || self.cloud.iter().any(|line| line.changes);
        match (changes, self.cloud_read) {
            (true, _) => {}
            (false, true) => writeln!(f, "Nothing would be changed.")?,
            (false, false) => writeln!(f, "No VnicAttachment would be changed.")?,
        }
        for entry in &self.objects {
            writeln!(f, "{}", printable(&entry.text))?;
        }
        for line in &self.cloud {
            writeln!(f, "{}", printable(&line.text))?;
        }
        if !self.later.is_empty() {
            writeln!(f, "\nWithin {} minutes, if it stays so:", GRACE.as_secs() / 60)?;
        }
        for entry in &self.later {
            writeln!(f, "{}", printable(&entry.text))?;
        }
        if !self.when_not_paused.is_empty() {
            writeln!(f, "\nWhen it is no longer paused:")?;
        }
        for entry in &self.when_not_paused {
            writeln!(f, "{}", printable(&entry.text))?;
        }
        if !self.problems.is_empty() {
            writeln!(f, "\nProblems:")?;
        }
        for Problem { node, reason, note } in &self.problems {
            writeln!(f, "node {}: {reason}: {}", printable(node), printable(note))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_for_people() {
        let note = "no VnicProfile \u{1b}[31m\nnode b: fine".to_owned();
        let problem = NodeProblem { node: "a", reason: "UnknownVnicProfile", note };
        let text =
            Report::of(PlannedSteps { now: &[], later: &[], when_not_paused: &[] }, &[problem], Vec::new(), true)
                .to_string();
        let last = "node a: UnknownVnicProfile: no VnicProfile \\u{1b}[31m\\nnode b: fine";
        assert_eq!(text.lines().last(), Some(last));
    }
}
