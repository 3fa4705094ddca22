//! The settings, validated: the only configuration that the rest of the agent sees.

use std::net::SocketAddr;
use std::ops::Deref;
use std::path::PathBuf;

use installer::Signals;
use resident::args::NodeIpMissing;
use resident::config::ProgramSettings;
use resident::scrape::MetricsPort;
use thiserror::Error;
use vcn::LinkKindName;

use crate::args::Options;

pub use crate::args::{CaptureScope, HostNetworking, Permission, Ports};

/// The agent's socket, in the state directory.
pub const AGENT_SOCKET: &str = "agent.sock";

/// What the agent locks for as long as it runs, there, too.
pub const AGENT_LOCK: &str = "agent.lock";

/// The options, which are valid each by itself, and what follows from several of them.
#[derive(Clone, Debug)]
pub struct Settings {
    options: Options,
    /// Where the controller reads this node's health, unless it may not or the address is unknown.
    pub channel: Option<SocketAddr>,
    /// Where metrics are served to other machines.
    pub metrics_port: Option<MetricsPort>,
    /// What is known of the cluster's pod network from outside; metadata and NativePodNetwork are added at run time.
    pub signals: Signals,
    /// The settings of the installer.
    pub installer: installer::Settings,
}

/// Why the options make no settings.
#[derive(Debug, Error)]
pub enum SettingsError {
    /// A port of an unknown address.
    #[error(transparent)]
    MetricsPort(#[from] NodeIpMissing),
    /// An exporter at the node's unknown address.
    #[error("DCGM_METRICS has NODE_IP, and the setting NODE_IP is missing")]
    ExporterAddress,
    /// A setting of the installer is not valid.
    #[error(transparent)]
    Installer(#[from] installer::SettingsError),
}

impl Settings {
    /// The file of the controller's rules of health signals.
    pub fn controller_rules(&self) -> PathBuf {
        self.data_dir.join(vcn::CONTROLLER_RULES_FILE)
    }

    /// Checks options as typed.
    pub fn new(options: Options) -> Result<Self, SettingsError> {
        let (state_dir, data_dir) = (options.state_dir.clone(), options.data_dir.clone());
        let state = installer::StateDirectories { state_dir, data_dir };
        let port = options.channel_port;
        if options.dcgm_metrics.needs_node_ip() && options.resident.node_ip.is_none() {
            return Err(SettingsError::ExporterAddress);
        }
        Ok(Self {
            channel: options.resident.node_ip.filter(|_| port != 0).map(|address| SocketAddr::new(address, port)),
            metrics_port: options.resident.metrics()?,
            signals: Signals { set: options.signals.clone(), ..Signals::default() },
            installer: installer::Settings::new(options.installer.clone(), state)?,
            options,
        })
    }

    /// The kind of links of VNICs.
    pub fn nics(&self) -> LinkKindName {
        LinkKindName::new(self.test_nic_kind.clone())
    }

    /// The socket that the subcommands use.
    pub fn socket(&self) -> PathBuf {
        self.state_dir.join(AGENT_SOCKET)
    }
}

impl Deref for Settings {
    type Target = Options;

    fn deref(&self) -> &Options {
        &self.options
    }
}

impl ProgramSettings for Settings {
    type Options = Options;
    type Error = SettingsError;

    fn from_options(options: Options) -> Result<Self, SettingsError> {
        Self::new(options)
    }
}

#[cfg(test)]
mod precedence;
