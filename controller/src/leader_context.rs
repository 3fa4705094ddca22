//! What the leader's tasks share.

use std::sync::Arc;

use kube::Client;

use crate::cluster::events::Events;
use crate::cluster::oke_repair::OkeRepair;
use crate::cluster::store::Store;
use crate::report::metrics::Metrics;

pub(crate) struct LeaderContext {
    /// The API server, through a client that retries.
    pub(crate) client: Client,
    /// One that does not retry.
    pub(crate) plain: Client,
    pub(crate) store: Arc<Store>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) events: Events,
    /// How a repair of OKE is recognized.
    pub(crate) repair: Arc<OkeRepair>,
}

impl LeaderContext {
    /// `plain` is a client that does not retry.
    pub(crate) fn new(
        plain: &Client,
        client: &Client,
        store: &Arc<Store>,
        metrics: &Arc<Metrics>,
        events: Events,
    ) -> Self {
        let (store, metrics) = (store.clone(), metrics.clone());
        Self { client: client.clone(), plain: plain.clone(), store, metrics, events, repair: Arc::default() }
    }

    pub(crate) fn with_repair(self, repair: OkeRepair) -> Self {
        Self { repair: Arc::new(repair), ..self }
    }
}
