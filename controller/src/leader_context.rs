//! What the leader's tasks share.

use std::sync::Arc;

use kube::Client;
use resident::args::Toggle;

use crate::cluster::events::Events;
use crate::cluster::store::Store;
use crate::fleet::oke_repair::OkeRepair;
use crate::report::metrics::Metrics;
use crate::settings::Settings;

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

    /// With what the settings say about repairs of OKE.
    pub(crate) fn recognizing_repair(self, settings: &Settings) -> Self {
        let reads_configs = settings.oke_repair_configs == Toggle::On;
        Self { repair: Arc::new(OkeRepair::new(settings.oke_repair_taint.clone(), reads_configs)), ..self }
    }
}
