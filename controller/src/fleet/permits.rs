//! Which nodes may repair: few at a time. If many nodes have the same problem at once, its cause is not on the node.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use health::Summary;
use health::report::Verdict;
use health::rules::Action;
use tokio::time::Instant;

/// The time that counts: an agent repairs within it, or not at all.
const WINDOW: Duration = Duration::from_mins(10);

/// The most nodes of a hundred in that time; one node in a small cluster.
const MAX_REPAIRING_PERCENT: usize = 5;

/// The permits of the last minutes, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Permits(VecDeque<(Instant, Arc<str>)>);

impl Permits {
    /// Whether a node with this summary may repair, in a cluster of so many nodes.
    pub(crate) fn grant(&mut self, node: &Arc<str>, summary: &Summary, nodes: usize, now: Instant) -> bool {
        while self.0.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) >= WINDOW) {
            self.0.pop_front();
        }
        let needs_repair =
            summary.checks.iter().any(|check| check.verdict == Verdict::Problem && check.action == Action::Repair);
        if !needs_repair {
            return false;
        }
        if self.0.iter().any(|(_, known)| known == node) {
            return true;
        }
        let is_granted = self.0.len() < (nodes * MAX_REPAIRING_PERCENT / 100).max(1);
        if is_granted {
            self.0.push_back((now, node.clone()));
        }
        is_granted
    }
}

#[cfg(test)]
mod tests {
    use health::rules::Severity;
    use health::summary::Check;

    use super::*;
    use crate::fleet::findings::problem;

    fn summary(action: Action) -> Summary {
        let check = Check { action, ..problem("conntrack_use", Severity::Warning) };
        Summary { checks: vec![check], ..Summary::default() }
    }

    #[test]
    fn at_most_five_percent_of_nodes_repair_in_ten_minutes() {
        let (mut permits, start) = (Permits::default(), Instant::now());
        let nodes: Vec<Arc<str>> = (0..100).map(|number| format!("node-{number}").into()).collect();
        let mut granted = |action, now| {
            let summary = summary(action);
            nodes.iter().filter(|node| permits.grant(node, &summary, nodes.len(), now)).count()
        };
        assert_eq!(granted(Action::Report, start), 0);
        assert_eq!(granted(Action::Repair, start), 5);
        assert_eq!(granted(Action::Repair, start + WINDOW / 2), 5, "the same five");
        assert_eq!(granted(Action::Repair, start + WINDOW), 5, "others may follow");
    }

    #[test]
    fn only_node_of_a_small_cluster_may_repair() {
        let mut permits = Permits::default();
        assert!(permits.grant(&"a".into(), &summary(Action::Repair), 3, Instant::now()));
        assert!(!permits.grant(&"b".into(), &summary(Action::Repair), 3, Instant::now()));
    }
}
