//! The TCP port of health and metrics. The node's network does not need it: if another program uses the port, the agent
//! works without it, reports that, and binds it when it is free.

use std::net::SocketAddr;
use std::sync::Arc;

use resident::logging::chain;
use resident::server;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::report::condition::{Condition, Reason};
use crate::sources::backoff::RETRY;

/// Serves the port for ever, as soon as it can be had; meanwhile `told` has why it cannot.
pub(crate) async fn run(
    listen: SocketAddr,
    board: Arc<impl server::Answers>,
    chance: fn() -> f64,
    told: watch::Sender<Option<Condition>>,
) {
    let mut failures = 0;
    let port = loop {
        match TcpListener::bind(listen).await {
            Ok(port) => break port,
            Err(error) => {
                let message = format!("listening on {listen}: {}; it is tried again", chain(&error));
                let condition = Some(Condition::degraded(Reason::PortUnavailable, message));
                told.send_if_modified(|before| std::mem::replace(before, condition.clone()) != condition);
            }
        }
        failures += 1;
        sleep(RETRY.delay(failures, chance())).await;
    };
    told.send_if_modified(|before| before.take().is_some());
    server::serve_port(port, board).await;
}
