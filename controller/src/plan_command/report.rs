//! What would be done, for people and for programs.

use std::fmt;

use serde::Serialize;
use vcn::printable;

use super::cloud::Line;

use crate::profile::plan::step::Step;
use crate::profile::run::GRACE;
use crate::profile::select::selection::NodeProblem;

/// All of it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// Writes to the API server.
    objects: Vec<Entry>,
    /// Deletions that come when a grace is over, if things stay as they are.
    later: Vec<Entry>,
    /// Writes that come when the VnicProfiles that are paused no longer are.
    when_not_paused: Vec<Entry>,
    /// What would be done in the cloud, object by object, those that are to be made among them; and why nothing, where
    /// something is missing all the same.
    cloud: Vec<Line>,
    /// Whether the cloud could be asked, about all that it was to be asked about.
    cloud_read: bool,
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
    /// Of what is done now, when a grace is over and when nothing is paused.
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
            writeln!(f, "\nTo be seen to:")?;
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
