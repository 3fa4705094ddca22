//! The settings, validated: the only configuration that the rest of the agent sees.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use installer::Signals;
use resident::args::{NodeIpMissing, Toggle};
use resident::config::ProgramSettings;
use resident::scrape::MetricsPort;
use thiserror::Error;
use tracing::Level;
use vcn::{IfName, IfNameError};

use crate::args::{Options, Permission};

pub use crate::args::HostNetworking;

/// The agent's socket, in the state directory.
pub const AGENT_SOCKET: &str = "agent.sock";

/// What the agent locks for as long as it runs, there, too.
pub const AGENT_LOCK: &str = "agent.lock";

/// Where things are and what the operator wants.
#[derive(Clone, Debug)]
pub struct Settings {
    /// State of this boot.
    pub state_dir: PathBuf,
    /// State that outlives a boot.
    pub data_dir: PathBuf,
    /// The metadata service.
    pub metadata_url: String,
    /// The file that the NativePodNetwork is read from, where one was named.
    pub npn_file: Option<PathBuf>,
    /// The agent's own pod, where that is known.
    pub pod_name: Option<String>,
    /// The agent's own Node, where that is known.
    pub node_name: Option<String>,
    /// The address of the agent's own Node, where that is known.
    pub node_ip: Option<IpAddr>,
    /// Whether health signals are measured.
    pub measures_health: bool,
    /// Whether rules of health signals may raise limits of the kernel.
    pub may_raise_limits: bool,
    /// Rules of health signals that override the shipped ones and the controller's.
    pub health_rules: PathBuf,
    /// Whether conditions are reported as Events of Kubernetes.
    pub kubernetes_events: bool,
    /// Whether the node is uninstalled when the agent's DaemonSet was deleted.
    pub uninstall_when_deleted: bool,
    /// The kernel's settings.
    pub sysctl_root: PathBuf,
    /// Where health and metrics are served.
    pub listen: SocketAddr,
    /// Where the controller asks for this node's health, unless it may not or the address is unknown.
    pub channel: Option<SocketAddr>,
    /// The directory with the fingerprints of the controllers' keys.
    pub controller_keys: PathBuf,
    /// Where metrics are served to other machines.
    pub metrics_port: Option<MetricsPort>,
    /// Whether pods may ask the metadata service on port 80.
    pub pods_may_use_metadata: bool,
    /// Whether pods may send from addresses that they do not have.
    pub pods_may_spoof: bool,
    /// What the agent does about the host's network.
    pub host_networking: HostNetworking,
    /// Physical ports by name.
    pub ports: Ports,
    /// How often everything is looked at when nothing seems to happen.
    pub resync: Duration,
    /// How long a VNIC that is no longer listed is kept.
    pub detach_grace: Duration,
    /// How long a pod's link must have been seen missing until its attachment is ended without a DEL.
    pub dead_after: Duration,
    /// The host's file system, as seen from here: to see who else configures its network.
    pub host_root: PathBuf,
    /// The least that is logged.
    pub log_level: Level,
    /// The most that a changed configuration file waits.
    pub reload_jitter: Duration,
    /// What is known of the cluster's pod network from outside; metadata and NativePodNetwork are added at run time.
    pub signals: Signals,
    /// The installer's own.
    pub installer: installer::Settings,
}

/// Bare metal: which links are the physical ports, for machines whose metadata does not tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// Port 0.
    pub zero: Option<IfName>,
    /// Port 1.
    pub one: Option<IfName>,
}

/// Why the options make no settings.
#[derive(Debug, Error)]
pub enum SettingsError {
    /// A path that depends on where the program was started.
    #[error("{option} is {path}, which is not an absolute path", path = .path.display())]
    Relative {
        /// The option.
        option: &'static str,
        /// Its value.
        path: PathBuf,
    },
    /// A port that cannot be a link.
    #[error("{option} is no link")]
    Port {
        /// The option.
        option: &'static str,
        /// Why.
        #[source]
        source: IfNameError,
    },
    /// A metadata service that cannot be asked.
    #[error("{option} is no address of a metadata service")]
    Metadata {
        /// The option.
        option: &'static str,
        /// Why.
        #[source]
        source: Box<imds::Error>,
    },
    /// An interval that is none.
    #[error("{option} is {seconds}, which is not between 0.1 and 3600 seconds")]
    Interval {
        /// The option.
        option: &'static str,
        /// Its value.
        seconds: f64,
    },
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
    ///
    /// # Errors
    /// If one is not valid.
    pub fn new(mut options: Options) -> Result<Self, SettingsError> {
        // A manifest that leaves the value empty means "not set".
        let npn_file = options.npn_file.take().filter(|path| !path.as_os_str().is_empty());
        check_paths(&options, npn_file.as_ref())?;
        let url = &options.oci_metadata_base_url;
        let is_none = |source| SettingsError::Metadata { option: "--oci-metadata-base-url", source: Box::new(source) };
        imds::Imds::check(url).map_err(is_none)?;
        let (state_dir, data_dir) = (options.state_dir.clone(), options.data_dir.clone());
        let state = installer::StateDirectories { state_dir, data_dir };
        let installer = installer::Settings::new(options.installer, state)?;
        Ok(Self {
            npn_file,
            pod_name: options.pod_name.filter(|name| !name.is_empty()),
            node_name: options.node_name.filter(|name| !name.is_empty()),
            node_ip: options.resident.node_ip,
            measures_health: options.health == Toggle::On,
            may_raise_limits: options.repairs == Toggle::On,
            health_rules: options.health_rules,
            kubernetes_events: options.kubernetes_events == Permission::Allow,
            uninstall_when_deleted: options.uninstall_when_deleted == Permission::Allow,
            state_dir: options.state_dir,
            data_dir: options.data_dir,
            metadata_url: options.oci_metadata_base_url,
            sysctl_root: options.sysctl_root,
            listen: options.listen,
            channel: options
                .resident
                .node_ip
                .filter(|_| options.channel_port != 0)
                .map(|address| SocketAddr::new(address, options.channel_port)),
            controller_keys: options.controller_keys,
            metrics_port: options.resident.metrics()?,
            pods_may_use_metadata: options.pods_may_use_metadata == Permission::Allow,
            pods_may_spoof: options.pods_may_spoof == Permission::Allow,
            host_networking: options.host_networking,
            ports: Ports {
                zero: port("--bm-port-0", options.bm_port_0)?,
                one: port("--bm-port-1", options.bm_port_1)?,
            },
            resync: interval("--resync-seconds", options.resync_seconds)?,
            detach_grace: interval("--detach-grace-seconds", options.detach_grace_seconds)?,
            dead_after: interval("--dead-after-seconds", options.dead_after_seconds)?,
            host_root: options.host_root,
            log_level: options.resident.log_level.into(),
            reload_jitter: options.resident.reload_jitter(),
            signals: Signals { set: options.signals, ..Signals::default() },
            installer,
        })
    }

    /// The socket that the subcommands ask.
    pub fn socket(&self) -> PathBuf {
        self.state_dir.join(AGENT_SOCKET)
    }
}

impl ProgramSettings for Settings {
    type Options = Options;
    type Error = SettingsError;

    fn from_options(options: Options) -> Result<Self, SettingsError> {
        Self::new(options)
    }
}

impl Ports {
    /// The link that an index was set to.
    pub fn named(&self, index: u8) -> Option<IfName> {
        match index {
            0 => self.zero.clone(),
            1 => self.one.clone(),
            _ => None,
        }
    }
}

fn port(option: &'static str, name: Option<String>) -> Result<Option<IfName>, SettingsError> {
    // A manifest that leaves the value empty means "not set".
    let name = name.filter(|name| !name.is_empty());
    name.map(IfName::new).transpose().map_err(|source| SettingsError::Port { option, source })
}

fn check_paths(options: &Options, npn_file: Option<&PathBuf>) -> Result<(), SettingsError> {
    let paths = [
        ("--state-dir", &options.state_dir),
        ("--data-dir", &options.data_dir),
        ("--sysctl-root", &options.sysctl_root),
        ("--host-root", &options.host_root),
        ("--health-rules", &options.health_rules),
        ("--controller-keys", &options.controller_keys),
    ];
    let named = npn_file.map(|path| ("--npn-file", path));
    match paths.into_iter().chain(named).find(|(_, path)| !path.is_absolute()) {
        Some((option, path)) => Err(SettingsError::Relative { option, path: path.clone() }),
        None => Ok(()),
    }
}

fn interval(option: &'static str, seconds: f64) -> Result<Duration, SettingsError> {
    if (0.1..=3600.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(SettingsError::Interval { option, seconds })
    }
}

#[cfg(test)]
mod precedence;

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::Args;

    fn read(arguments: &[&str]) -> Result<Settings, SettingsError> {
        let command = ["oke-node-agent"].iter().chain(arguments);
        Settings::new(Args::try_parse_from(command).unwrap().options)
    }

    #[test]
    fn nothing_typed_is_a_valid_setting() {
        let settings = read(&[]).unwrap();
        assert_eq!(settings.npn_file, None);
        assert_eq!(settings.socket(), PathBuf::from("/run/vcn-native/agent.sock"));
        assert!(settings.pods_may_use_metadata);
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
            let message = read(&arguments).unwrap_err().to_string();
            assert!(message.contains(option), "{message}");
        }
    }

    #[test]
    fn options_may_follow_the_subcommand() {
        let arguments = ["oke-node-agent", "status", "-o", "json", "--state-dir", "/tmp/x"];
        assert_eq!(Args::try_parse_from(arguments).unwrap().options.state_dir, PathBuf::from("/tmp/x"));
    }

    #[test]
    fn an_empty_port_is_not_set() {
        assert_eq!(read(&["--bm-port-0", ""]).unwrap().ports, Ports::default());
    }
}
