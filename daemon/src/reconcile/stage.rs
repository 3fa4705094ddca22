//! What the stages of a reconcile report, one after the other.

use datapath::host::HostVnic;
use ipam::Allocation;
use resident::logging::chain;

use crate::facts::condition::{Condition, Reason};
use crate::facts::reconcile_report::{Changed, PodNetworkState};

/// What the stages so far did and found.
#[derive(Debug, Default)]
pub(super) struct StageReport {
    pub(super) changes: Vec<Changed>,
    pub(super) conditions: Vec<Condition>,
    /// The VNICs whose host network is in sync; `None` while that is not known, or something that all pods need failed.
    pub(super) configured: Option<Vec<HostVnic>>,
    /// The pods that run, as far as that can be read.
    pub(super) running: Vec<Allocation>,
    /// Whether pools.json has any address for pods.
    pub(super) offers_addresses: bool,
    /// Who owns the pod network, and what was installed.
    pub(super) pod_network: Option<PodNetworkState>,
}

impl StageReport {
    /// Whether a pod could get an address and would be connected.
    pub(super) const fn is_usable(&self) -> bool {
        self.offers_addresses && self.configured.is_some()
    }
}

/// Why remains of pods are not known, or not removed.
pub(super) fn unknown(about: &str, error: &(dyn std::error::Error + 'static)) -> Condition {
    Condition::degraded(Reason::HostNetworkFailed, chain(error)).about(about)
}
