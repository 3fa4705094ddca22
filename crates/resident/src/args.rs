//! Options that the command lines of all resident programs share.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use thiserror::Error;
use tracing::Level;

use crate::scrape::MetricsPort;

/// What to print about the configuration.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct ConfigArgs {
    /// Every key with its default, unit and meaning
    #[arg(long, conflicts_with = "check")]
    pub explain: bool,
    /// Check a file, independent of flags and environment
    #[arg(long, value_name = "FILE")]
    pub check: Option<PathBuf>,
    /// The output format.
    #[command(flatten)]
    pub output: Output,
}

/// Whether a part of a program works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Toggle {
    /// The part works.
    #[value(help = None)]
    On,
    /// It does not.
    #[value(help = None)]
    Off,
}

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
pub struct Output {
    /// Output for people or for programs
    #[arg(short, long, value_enum, default_value = "table", value_name = "FORMAT")]
    pub output: Format,
}

/// An output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Columns and sentences.
    Table,
    /// JSON.
    Json,
}

/// The options that every resident program has.
#[derive(Clone, Debug, clap::Args)]
pub struct ResidentOptions {
    /// The TCP port at NODE_IP that serves /metrics. Without METRICS_TLS_DIR, every client that reaches it can read the metrics:
    /// allow only Prometheus in the firewall [default: only LISTEN]
    #[arg(long, global = true, env = "METRICS_PORT", value_parser = clap::value_parser!(u16).range(1..), value_name = "PORT")]
    pub metrics_port: Option<u16>,
    /// A directory with tls.crt, tls.key and ca.crt, read again every minute. METRICS_PORT then speaks TLS and serves only clients
    /// with a certificate of ca.crt [default: METRICS_PORT is open]
    #[arg(long, global = true, env = "METRICS_TLS_DIR", value_name = "DIR")]
    pub metrics_tls_dir: Option<PathBuf>,
    /// The address of the pod's Node, from the downward API: METRICS_PORT is opened on it. Without it METRICS_PORT is refused
    /// [default: unknown]
    #[arg(long, global = true, env = "NODE_IP", value_name = "ADDRESS")]
    pub node_ip: Option<IpAddr>,
    /// The lowest level that is logged
    #[arg(long, global = true, env = "LOG_LEVEL", value_parser = levels(), default_value = "info", value_name = "LEVEL")]
    pub log_level: Level,
    /// The longest random delay before the program restarts in place with a changed configuration file, in seconds, so that the
    /// programs of a cluster do not restart together
    #[arg(long, global = true, env = "RELOAD_JITTER_SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u16).range(..=3600), value_name = "SECONDS")]
    pub reload_jitter_seconds: u16,
}

fn levels() -> impl TypedValueParser<Value = Level> {
    PossibleValuesParser::new(["error", "warn", "info", "debug", "trace"]).try_map(|level| level.parse::<Level>())
}

/// The port has no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("--metrics-port needs --node-ip (NODE_IP), the address that it is opened on")]
pub struct NodeIpMissing;

impl ResidentOptions {
    /// Where metrics are served to other machines.
    ///
    /// # Errors
    /// When the node's address is missing.
    pub fn metrics(&self) -> Result<Option<MetricsPort>, NodeIpMissing> {
        let Some(port) = self.metrics_port else { return Ok(None) };
        let listen = SocketAddr::new(self.node_ip.ok_or(NodeIpMissing)?, port);
        // A manifest that leaves the value empty means "not set".
        let tls = self.metrics_tls_dir.clone().filter(|path| !path.as_os_str().is_empty());
        Ok(Some(MetricsPort { listen, tls }))
    }

    /// The longest delay before a changed configuration file takes effect.
    pub fn reload_jitter(&self) -> Duration {
        Duration::from_secs(self.reload_jitter_seconds.into())
    }
}
