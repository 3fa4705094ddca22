//! Problems of nodes: each is logged and reported as an Event once while it lasts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cluster::events::{EventContent, Events, Level};
use crate::cluster::store::NodeView;
use crate::profile::select::selection::NodeProblem;

/// The reported problems of the last reconcile: node, reason and note.
#[derive(Debug, Default)]
pub(crate) struct Problems(BTreeSet<(String, &'static str, String)>);

impl Problems {
    /// Logs new problems and queues Events for them. Those without room in the queue are new at the next reconcile.
    pub(crate) fn report(&mut self, problems: &[NodeProblem<'_>], nodes: &[Arc<NodeView>], events: &Events) {
        let before = std::mem::take(&mut self.0);
        let nodes: BTreeMap<&str, &NodeView> = nodes.iter().map(|node| (node.name.as_str(), node.as_ref())).collect();
        let mut has_room = true;
        for NodeProblem { node, reason, note } in problems {
            let key = ((*node).to_owned(), *reason, note.clone());
            if before.contains(&key) {
                self.0.insert(key);
                continue;
            }
            let Some(view) = nodes.get(node).filter(|_| has_room) else { continue };
            let (regarding, note) = (view.reference(), note.clone());
            has_room = events.report(EventContent { regarding, level: Level::Warning, reason, action: "Select", note });
            if has_room {
                tracing::warn!(event = "node.problem", node, reason, note = key.2);
                self.0.insert(key);
            }
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
        let mut reported = Vec::new();
        for look in 0..3 {
            problems.report(&all, &nodes, &events);
            while let Some(news) = writer.next() {
                reported.push(news.regarding.name.unwrap());
            }
            assert_eq!(reported.len(), [1000, 1500, 1500][look], "at look {look}");
        }
        assert_eq!(reported, names);
        assert_eq!(metrics.events_lost.get(), 1, "it stops at the first that finds no room");
        problems.report(&[], &nodes, &events);
        assert_eq!(writer.next(), None);
    }
}
