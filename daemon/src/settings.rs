//! The settings, validated: the only configuration that the rest of the agent sees.

use std::net::SocketAddr;
use std::ops::Deref;
use std::path::PathBuf;

use installer::Signals;
use resident::args::NodeIpMissing;
use resident::config::ProgramSettings;
use resident::scrape::MetricsPort;
use thiserror::Error;

use crate::args::Options;

pub use crate::args::{HostNetworking, Permission, Ports};

/// The agent's socket, in the state directory.
pub const AGENT_SOCKET: &str = "agent.sock";

/// What the agent locks for as long as it runs, there, too.
pub const AGENT_LOCK: &str = "agent.lock";

/// The options, which are valid each by itself, and what follows from several of them.
#[derive(Clone, Debug)]
pub struct Settings {
    options: Options,
    /// Where the controller asks for this node's health, unless it may not or the address is unknown.
    pub channel: Option<SocketAddr>,
    /// Where metrics are served to other machines.
    pub metrics_port: Option<MetricsPort>,
    /// What is known of the cluster's pod network from outside; metadata and NativePodNetwork are added at run time.
    pub signals: Signals,
    /// The installer's own.
    pub installer: installer::Settings,
}

/// Why the options make no settings.
#[derive(Debug, Error)]
pub enum SettingsError {
    /// A port of an unknown address.
    #[error(transparent)]
    MetricsPort(#[from] NodeIpMissing),
    /// The installer's settings.
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
        Ok(Self {
            channel: options.resident.node_ip.filter(|_| port != 0).map(|address| SocketAddr::new(address, port)),
            metrics_port: options.resident.metrics()?,
            signals: Signals { set: options.signals.clone(), ..Signals::default() },
            installer: installer::Settings::new(options.installer.clone(), state)?,
            options,
        })
    }

    /// The socket that the subcommands ask.
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::Args;

    fn read(arguments: &[&str]) -> Result<Settings, String> {
        let parsed = Args::try_parse_from(["oke-node-agent"].iter().chain(arguments));
        Settings::new(parsed.map_err(|error| error.to_string())?.options).map_err(|error| error.to_string())
    }

    #[test]
    fn nothing_typed_is_a_valid_setting() {
        let settings = read(&[]).unwrap();
        assert_eq!(settings.npn_file, None);
        assert_eq!(settings.socket(), PathBuf::from("/run/vcn-native/agent.sock"));
        assert_eq!(settings.pods_may_use_metadata, Permission::Allow);
    }

    #[test]
    fn invalid_value_error_names_its_option() {
        for (arguments, option) in [
            (["--state-dir", "run"], "--state-dir"),
            (["--bm-port-0", "a name"], "--bm-port-0"),
            (["--metrics-port", "9808"], "--metrics-port needs --node-ip (NODE_IP)"),
            (["--resync-seconds", "0"], "--resync-seconds"),
            (["--resync-seconds", "NaN"], "--resync-seconds"),
            (["--oci-metadata-base-url", "nonsense"], "--oci-metadata-base-url"),
            (["--oci-metadata-base-url", "https://169.254.169.254/opc/v2"], "--oci-metadata-base-url"),
        ] {
            let message = read(&arguments).unwrap_err();
            assert!(message.contains(option), "{message}");
        }
    }

    #[test]
    fn options_may_follow_the_subcommand() {
        let arguments = ["oke-node-agent", "status", "-o", "json", "--state-dir", "/tmp/x"];
        assert_eq!(Args::try_parse_from(arguments).unwrap().options.state_dir, PathBuf::from("/tmp/x"));
    }
}
