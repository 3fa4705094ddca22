//! The plan as text for people and as JSON for programs.

use std::fmt;

use serde::Serialize;
use vcn::printable;

use super::cloud::Line;
use crate::profile::plan::step::Step;
use crate::profile::profiles::GRACE;
use crate::profile::select::selection::NodeProblem;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report<'a> {
    /// Writes to the API server.
    pub(super) objects: Vec<Entry>,
    /// Deletions after their grace period, if nothing changes.
    pub(super) later: Vec<Entry>,
    /// Writes that follow when paused VnicProfiles are resumed.
    pub(super) when_not_paused: Vec<Entry>,
    /// Steps in OCI, object by object, including objects still to be created; and the reason if a step is missing.
    pub(super) cloud: Vec<Line>,
    /// Whether OCI could be queried about everything.
    pub(super) cloud_read: bool,
    pub(super) problems: &'a [NodeProblem<'a>],
}

#[derive(Debug, Serialize)]
pub(super) struct Entry {
    /// make, change, replace or remove
    step: &'static str,
    object: String,
    text: String,
}

pub(super) fn entries(steps: &[Step]) -> Vec<Entry> {
    let entry = |step: &Step| Entry { step: step.kind(), object: step.object().to_owned(), text: step.to_string() };
    steps.iter().map(entry).collect()
}

impl fmt::Display for Report<'_> {
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
        let within = format!("Within {} minutes, if it stays so:", GRACE.as_secs() / 60);
        for (title, entries) in [(&*within, &self.later), ("When it is no longer paused:", &self.when_not_paused)] {
            if !entries.is_empty() {
                writeln!(f, "\n{title}")?;
            }
            for entry in entries {
                writeln!(f, "{}", printable(&entry.text))?;
            }
        }
        if !self.problems.is_empty() {
            writeln!(f, "\nProblems:")?;
        }
        for NodeProblem { node, reason, note } in self.problems {
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
        let [objects, later, when_not_paused] = [(); 3].map(|()| Vec::new());
        let problems = &[problem];
        let report = Report { objects, later, when_not_paused, cloud: Vec::new(), cloud_read: true, problems };
        let text = report.to_string();
        let last = "node a: UnknownVnicProfile: no VnicProfile \\u{1b}[31m\\nnode b: fine";
        assert_eq!(text.lines().last(), Some(last));
    }
}
