//! Problems of nodes: each is logged and reported as an Event once while it lasts.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster::events::{EventContent, Events, Level};
use crate::cluster::store::NodeView;
use crate::profile::select::selection::NodeProblem;

/// The problems of the last reconcile.
#[derive(Debug, Default)]
pub struct Problems(BTreeMap<Key, ReportState>);

/// Node, reason and note.
type Key = (String, &'static str, String);

/// Whether it was reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReportState {
    /// It is logged; the Event queue had no room yet.
    Logged,
    /// Its Event is queued.
    Reported,
}

impl Problems {
    /// Logs new problems and queues Events for unreported ones. Those without room are queued at a later reconcile.
    pub fn tell(&mut self, problems: &[NodeProblem<'_>], nodes: &[Arc<NodeView>], events: &Events) {
        let before = std::mem::take(&mut self.0);
        for problem in problems {
            let key = (problem.node.to_owned(), problem.reason, problem.note.clone());
            let standing = before.get(&key).copied();
            if standing.is_none() {
                let NodeProblem { node, reason, note } = problem;
                tracing::warn!(event = "node.problem", node, reason, note);
            }
            self.0.insert(key, standing.unwrap_or(ReportState::Logged));
        }
        let mut untold = self.0.iter_mut().filter(|(_, standing)| **standing == ReportState::Logged).peekable();
        if untold.peek().is_none() {
            return;
        }
        let nodes: BTreeMap<&str, &NodeView> = nodes.iter().map(|node| (node.name.as_str(), node.as_ref())).collect();
        for ((node, reason, note), standing) in untold {
            let Some(node) = nodes.get(node.as_str()) else { continue };
            let news = EventContent {
                regarding: node.reference(),
                level: Level::Warning,
                reason,
                action: "Select",
                note: note.clone(),
            };
            // There is no room for the others either.
            if !events.report(news) {
                break;
            }
            *standing = ReportState::Reported;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::select::selection::UNKNOWN_PROFILE;
    use crate::report::metrics::Metrics;

    #[test]
    fn a_problem_without_room_is_reported_later() {
        let (metrics, count) = (Arc::new(Metrics::default()), 1500);
        let (events, mut writer) = Events::new(metrics.clone());
        let names: Vec<String> = (0..count).map(|number| format!("node-{number:04}")).collect();
        let node = |name: &String| {
            let uid = Some(format!("uid-of-{name}"));
            Arc::new(NodeView { name: name.clone(), uid, ..NodeView::default() })
        };
        let nodes: Vec<_> = names.iter().map(node).collect();
        let problem = |name| NodeProblem { node: name, reason: UNKNOWN_PROFILE, note: "no profile x".to_owned() };
        let all: Vec<NodeProblem<'_>> = names.iter().map(|name| problem(name)).collect();
        let mut problems = Problems::default();
        let mut told = Vec::new();
        for look in 0..3 {
            problems.tell(&all, &nodes, &events);
            while let Some(news) = writer.next() {
                told.push(news.regarding.name.unwrap());
            }
            assert_eq!(told.len(), [1000, 1500, 1500][look], "at look {look}");
        }
        assert_eq!(told, names);
        assert_eq!(metrics.events_lost(), 1, "it stops at the first that finds no room");
        problems.tell(&[], &nodes, &events);
        assert_eq!(writer.next(), None);
    }
}
