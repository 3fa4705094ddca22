//! Logs: JSON lines, on standard output where nothing else is written there, one per transition, each with a stable `event` name.
//! Nothing is logged because time has passed.

use std::io;

pub use command::chain;
use tracing::Level;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Logs from here on. The second call of a process does nothing, so tests may all call it.
pub fn start(least: Level) {
    start_on(io::stdout, least);
}

/// The same on standard error, for a command whose standard output is its report.
pub fn start_on_stderr(least: Level) {
    start_on(io::stderr, least);
}

fn start_on(writer: impl for<'w> MakeWriter<'w> + Send + Sync + 'static, least: Level) {
    let logs = fmt::layer()
        .json()
        .flatten_event(true)
        .with_current_span(false)
        .with_span_list(false)
        .with_target(false)
        .with_writer(writer);
    // The client of the API server logs the errors that it returns, without an event's name; the caller logs them.
    let not_of_kube = filter_fn(|metadata| !metadata.target().starts_with("kube_"));
    let _ = tracing_subscriber::registry().with(LevelFilter::from_level(least)).with(not_of_kube).with(logs).try_init();
}
