//! What our resident programs have in common towards the people who operate them: how they are configured, what they
//! log, how they are measured and probed, what they tell Kubernetes. Nothing of what they do.
//!
//! ```text
//!   flags, environment, file ──▶ config ──▶ settings of the program ──▶ reload (restart in place)
//!   logging (JSON lines)    metrics (and their table in docs/)    server (/healthz, /readyz, /metrics)    scrape (/metrics for other machines)
//!   events (of Kubernetes)    api_server (a client of it, inside a pod)
//!   watch_activity (whether a watch of it is alive)
//! ```

pub mod api_server;
pub mod args;
pub mod command_line;
pub mod config;
pub mod events;
pub mod explain;
pub mod logging;
pub mod metrics;
pub mod readable;
pub mod reload;
pub mod scrape;
pub mod server;
pub mod watch_activity;
