//! The TCP port of health and metrics. The node's network does not need it: if another program uses the port, the agent works
//! without it, reports that, and binds it when it is free.

use std::net::SocketAddr;
use std::sync::Arc;

use resident::logging::chain;
use resident::server;
use tokio::net::TcpListener;

use crate::facts::condition::{Condition, Reason};
use crate::report::notices::Notices;
use crate::sources::backoff::persist;

/// Serves the port. While it cannot be bound, `notices` say why.
pub(crate) async fn run(listen: SocketAddr, status_server: Arc<impl server::Handler>, notices: Notices) {
    let bind = async || {
        let bound = TcpListener::bind(listen).await;
        bound.map_err(|error| format!("listening on {listen}: {}", chain(&error)))
    };
    let report = |why: Option<String>| {
        notices.report(why.map(|message| Condition::degraded(Reason::PortUnavailable, message)));
    };
    server::serve_port(persist(bind, report).await, status_server).await;
}
