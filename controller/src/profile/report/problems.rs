//! Problems of nodes: each is logged and reported as an Event once while it lasts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cluster::events::{EventContent, Events, Level};
use crate::cluster::store::NodeView;
use crate::profile::select::selection::NodeProblem;

/// The reported problems of the last reconcile: node, reason and note.
#[derive(Debug, Default)]
pub struct Problems(BTreeSet<(String, &'static str, String)>);

impl Problems {
    /// Logs new problems and queues Events for them.
    pub fn report(&mut self, problems: &[NodeProblem<'_>], nodes: &[Arc<NodeView>], events: &Events) {
        let nodes: BTreeMap<&str, &NodeView> = nodes.iter().map(|node| (node.name.as_str(), node.as_ref())).collect();
        let mut present = BTreeSet::new();
        for NodeProblem { node, reason, note } in problems {
            let Some(view) = nodes.get(node) else { continue };
            let key = ((*node).to_owned(), *reason, note.clone());
            if !self.0.contains(&key) {
                tracing::warn!(event = "node.problem", node, reason, note);
                let (regarding, note) = (view.reference(), note.clone());
                events.report(EventContent { regarding, level: Level::Warning, reason, action: "Select", note });
            }
            present.insert(key);
        }
        self.0 = present;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::profile::select::selection::UNKNOWN_PROFILE;

    #[tokio::test(start_paused = true)]
    async fn a_problem_is_reported_once_while_it_lasts() {
        let (events, mut writer) = Events::new(Arc::default());
        let nodes = [Arc::new(NodeView { name: "node-1".to_owned(), ..NodeView::default() })];
        let lasting = [NodeProblem { node: "node-1", reason: UNKNOWN_PROFILE, note: "no profile x".to_owned() }];
        let mut problems = Problems::default();
        let mut reported = |all: &[NodeProblem<'_>]| {
            problems.report(all, &nodes, &events);
            writer.next().map(|news| news.note)
        };
        assert_eq!(reported(&lasting).as_deref(), Some("no profile x"));
        for _ in 0..3 {
            tokio::time::advance(Duration::from_hours(1)).await;
            assert_eq!(reported(&lasting), None);
        }
        assert_eq!(reported(&[]), None);
        assert!(reported(&lasting).is_some(), "it is back");
    }
}
