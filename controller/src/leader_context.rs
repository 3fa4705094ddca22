//! What the leader's tasks share.

use std::sync::Arc;

use kube::Client;

use crate::cluster::events::Events;
use crate::cluster::store::Store;
use crate::report::metrics::Metrics;

pub(crate) struct LeaderContext {
    /// The API server, through a client that retries.
    pub(crate) client: Client,
    pub(crate) store: Arc<Store>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) events: Events,
}
