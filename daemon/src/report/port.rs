//! The TCP port of health and metrics. The node's network does not need it: if another program uses the port, the agent works
//! without it, reports that, and binds it when it is free.

use std::net::SocketAddr;
use std::sync::Arc;

use resident::logging::chain;
use resident::server;
use tokio::net::TcpListener;
use tokio::time::sleep;

use crate::report::condition::{Condition, Reason};
use crate::report::notices::Notices;
use crate::sources::backoff::RETRY;

/// Serves the port. While it cannot be bound, `notices` say why.
pub(crate) async fn run(
    listen: SocketAddr,
    status_server: Arc<impl server::Handler>,
    chance: fn() -> f64,
    notices: Notices,
) {
    let mut failures = 0;
    let port = loop {
        match TcpListener::bind(listen).await {
            Ok(port) => break port,
            Err(error) => {
                let message = format!("listening on {listen}: {}; the agent retries", chain(&error));
                notices.report([Condition::degraded(Reason::PortUnavailable, message)]);
            }
        }
        failures += 1;
        sleep(RETRY.delay(failures, chance())).await;
    };
    notices.report([]);
    server::serve_port(port, status_server).await;
}
