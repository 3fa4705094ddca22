//! What reconciling the VnicProfiles reads and writes, and its periods.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::watch;

use crate::cluster::events::Events;
use crate::cluster::store::Store;
use crate::profile::node_pools::Nominated;
use crate::report::metrics::Metrics;

/// How long one plan is applied before a new one is made. Within this time a paused or deleted profile stops, and one whose
/// writes are not answered delays no other. Thousands of steps fit in.
pub(crate) const ROUND: Duration = Duration::from_secs(5);
/// How long a node that is no longer selected keeps its VNICs, so that a label that flaps during a rollout, or a mistake
/// noticed in time, costs nothing.
pub(crate) const GRACE: Duration = Duration::from_mins(10);

/// The reconciler of the VnicProfiles.
#[derive(Clone)]
pub(crate) struct Profiles {
    pub client: Client,
    /// The objects; read completely before this runs.
    pub store: Arc<Store>,
    /// The instances whose node pool decides about VNICs, for the reader of node pools.
    pub nominated: watch::Sender<Nominated>,
    pub metrics: Arc<Metrics>,
    pub events: Events,
    /// How long a node that is no longer selected keeps its VNICs.
    pub grace: Duration,
    /// How long one plan is applied.
    pub round: Duration,
    /// A random number in 0.0–1.0, for the jitter of retries.
    pub chance: fn() -> f64,
}
