//! Problems of what Nodes request, as the profiles' reconcile found them. Synchronous and pure.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;

/// The problems of all Nodes, by the Node's name.
#[derive(Debug, Default)]
pub struct NodeIssues(BTreeMap<String, Vec<NodeIssue>>);

/// A problem of one Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeIssue {
    /// The stable word of the Event.
    pub reason: &'static str,
    /// The text of the Event, for people.
    pub note: String,
    /// When it was first found.
    pub since: Timestamp,
}

impl NodeIssues {
    /// Those of a Node.
    pub fn of(&self, node: &str) -> &[NodeIssue] {
        self.0.get(node).map(Vec::as_slice).unwrap_or_default()
    }

    /// Replaces all of them. The time of one that was known stays.
    pub fn replace<'a>(&mut self, found: impl Iterator<Item = (&'a str, &'static str, &'a str)>, now: Timestamp) {
        let before = std::mem::take(&mut self.0);
        for (node, reason, note) in found {
            let known = before.get(node).into_iter().flatten();
            let since = known.filter(|one| one.reason == reason && one.note == note).map(|one| one.since).next();
            let issue = NodeIssue { reason, note: note.to_owned(), since: since.unwrap_or(now) };
            self.0.entry(node.to_owned()).or_default().push(issue);
        }
    }
}
