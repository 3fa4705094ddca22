//! Metrics of NodePolicies.

use api::node_policy::PolicyCounts;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use resident::metrics::MetricRegistry;

use super::labels::{PolicyNodes, PolicyProgress};

/// A policy in numbers.
#[derive(Clone, Debug)]
pub(crate) struct PolicyCensus {
    pub policy: String,
    /// The reason of its condition Progressing.
    pub progress: &'static str,
    pub counts: PolicyCounts,
}

#[derive(Debug)]
pub(crate) struct PolicyMetrics {
    progress: Family<PolicyProgress, Gauge>,
    nodes: Family<PolicyNodes, Gauge>,
    stopped: Gauge,
}

impl PolicyMetrics {
    pub(super) fn new(all: &mut MetricRegistry) -> Self {
        Self {
            progress: all.family("node_policy_progress", "1 for each NodePolicy and the reason of its condition Progressing, such as Canary, Rolling, Rejected or Done"),
            nodes: all.family("node_policy_nodes", "Nodes of a NodePolicy: matched (selected), target (with its revision), failed, drifted, conflicted, unsupported (older agent) or unavailable (NotReady or silent)"),
            stopped: all.metric("node_policy_stopped", "1 while the cluster's stop switch keeps the controller from sending anything to agents"),
        }
    }

    /// Replaces what is shown.
    pub(crate) fn set(&self, policies: Vec<PolicyCensus>, is_stopped: bool) {
        self.stopped.set(i64::from(is_stopped));
        self.progress.clear();
        self.nodes.clear();
        for PolicyCensus { policy, progress, counts } in policies {
            self.progress.get_or_create(&PolicyProgress { policy: policy.clone(), progress }).set(1);
            for (state, count) in [
                ("matched", counts.matched),
                ("target", counts.target),
                ("failed", counts.failed),
                ("drifted", counts.drifted),
                ("conflicted", counts.conflicted),
                ("unsupported", counts.unsupported),
                ("unavailable", counts.unavailable),
            ] {
                self.nodes.get_or_create(&PolicyNodes { policy: policy.clone(), state }).set(count.into());
            }
        }
    }
}
