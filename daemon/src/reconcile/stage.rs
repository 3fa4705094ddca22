//! What all stages of a reconcile have in common.

use datapath::host::HostVnic;

use super::context::Context;
use crate::report::condition::Condition;
use crate::report::reconcile_report::{Changed, PodNetworkState};

/// A part of a reconcile. Each remembers what it needs from one reconcile to the next.
pub(super) trait Stage {
    /// Brings its part of the node in sync, and reports.
    fn run(&mut self, context: &Context<'_>) -> StageReport;
}

/// What a stage did and found.
#[derive(Debug, Default)]
pub(super) struct StageReport {
    pub(super) changes: Vec<Changed>,
    pub(super) conditions: Vec<Condition>,
    /// The VNICs whose host network is in sync; `None` while that is not known, or something that all pods need failed.
    pub(super) configured: Option<Vec<HostVnic>>,
    /// Whether pools.json has any address for pods.
    pub(super) offers_addresses: bool,
    /// Who owns the pod network, and what was installed.
    pub(super) pod_network: Option<PodNetworkState>,
}

impl StageReport {
    pub(super) fn of_conditions(conditions: impl IntoIterator<Item = Condition>) -> Self {
        Self { conditions: conditions.into_iter().collect(), ..Self::default() }
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.changes.extend(other.changes);
        self.conditions.extend(other.conditions);
        self.offers_addresses |= other.offers_addresses;
        self.configured = other.configured.or_else(|| self.configured.take());
        self.pod_network = other.pod_network.or_else(|| self.pod_network.take());
    }

    /// Whether a pod could get an address and would be connected.
    pub(super) const fn is_usable(&self) -> bool {
        self.offers_addresses && self.configured.is_some()
    }
}
