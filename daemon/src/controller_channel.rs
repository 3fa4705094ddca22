//! The channel on which the controller reads this node's health: TLS with pinned keys at the node's address. The agent's key
//! is new with each process; its fingerprint is an annotation of the agent's own Pod. Nothing on the node waits for it.
//!
//! ```text
//!   Identity ─▶ announcement ─▶ annotation of the Pod ─▶ controller
//!   ConfigMap of the controllers' keys, mounted ─▶ trusted_keys ─▶ server ─▶ answers (summary, details, rules, probes, bundle, captures)
//! ```

mod announcement;
mod answers;
mod bundle_stream;
mod captures;
mod controller_rules;
mod json_reply;
mod trusted_keys;

use std::sync::Arc;

use channel::{Announcement, Identity, Limits};
use health::summary::poll::NodeReport;
use resident::config::Layers;
use resident::logging::chain;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::captures::Captures;
use crate::facts::condition::{Condition, Reason};
use crate::probes::{ProbeEnvironment, ProbeHandler};
use crate::reconcile::kernel_limits::RepairGate;
use crate::report::notices::Notices;
use crate::report::status_server::StatusServer;
use crate::sources::backoff::persist;
use answers::Answers;
use bundle_stream::BundleStream;
use controller_rules::ControllerRules;
use trusted_keys::ControllerKeys;

/// Serves the channel and publishes its key, with retries. While that fails, `notices` say why.
pub(crate) async fn run(
    status_server: Arc<StatusServer>,
    gate: RepairGate,
    node_report: watch::Sender<NodeReport>,
    notices: Notices,
    layers: Layers,
) {
    let settings = status_server.agent.settings.clone();
    let Some(address) = settings.channel else {
        tracing::info!(event = "channel.off", "CHANNEL_PORT is 0, or NODE_IP is not set");
        return std::future::pending().await;
    };
    let report = |message: Option<String>| {
        notices.report(message.map(|message| Condition::degraded(Reason::ChannelUnavailable, message)));
    };
    let open = async || {
        let identity = Identity::generate().map_err(|error| chain(&error))?;
        let bound = TcpListener::bind(address).await;
        Ok((identity, bound.map_err(|error| format!("listen on {address}: {}", chain(&error)))?))
    };
    let (identity, listener) = persist(open, &report).await;
    let announced = Announcement { port: address.port(), key: identity.fingerprint() };
    tracing::info!(event = "channel.listening", %address, key = %announced.key);
    let keys = ControllerKeys::default();
    let probes = ProbeHandler::new(ProbeEnvironment::of_this_process());
    let rules = ControllerRules::new(settings.controller_rules());
    let bundle = BundleStream::new(settings.clone(), layers.clone());
    let captures = Captures::new(settings.clone(), layers);
    let answers =
        Answers { settings: settings.clone(), status_server, gate, node_report, rules, probes, bundle, captures };
    // Cancel-safe: no branch ends, unless TLS cannot be set up.
    let failed = tokio::select! {
        Err(error) = channel::serve(listener, &identity, keys.trusted(), Arc::new(answers), Limits::default()) => error,
        () = keys.clone().run(settings.controller_keys.clone()) => return,
        () = async {
            announcement::publish(&settings, announced, report).await;
            std::future::pending().await
        } => return,
    };
    report(Some(format!("set TLS up: {}", chain(&failed))));
    std::future::pending().await
}
