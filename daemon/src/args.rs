//! The command line as typed, and the list of all settings: each option with a variable is also a key of the environment and
//! of the configuration file (see [`resident::config`]).

pub(crate) mod dcgm_metrics;
mod operation;
mod tunable_keys;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use resident::args::{ConfigArgs, Output, ResidentOptions, Toggle};
use resident::command_line::CONFIG_FILE;
use resident::config::keys::Keys;
use resident::logging::chain;
use vcn::IfName;

use dcgm_metrics::DcgmMetrics;
pub use operation::{FilesArgs, LogsArgs, Operation, OperationArgs};
pub use tunable_keys::TunableKeys;

/// Runs on each node: configures secondary VNICs, publishes pod addresses, installs the CNI plugin and reports. Pods start
/// and stop while it is down.
#[derive(Clone, Debug, Parser)]
#[command(name = "oke-node-agent", version, after_help = AFTER)]
pub struct Args {
    /// The command; `run` by default
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The configuration file: lines of KEY=value with the variables below as keys. A file named here must exist
    #[arg(long, global = true, env = CONFIG_FILE, default_value = DEFAULT_CONFIG)]
    #[arg(value_name = "FILE")]
    pub config_file: PathBuf,
    /// All settings.
    #[command(flatten)]
    pub options: Options,
}

/// The configuration file, if it exists.
pub const DEFAULT_CONFIG: &str = "/etc/oke-node-agent/agent.conf";

const AFTER: &str = "\
Flags outrank the environment, the environment outranks the file. `oke-node-agent config --explain` describes each key.

Exit status: 0 success; 1 not ready, or failed; 2 wrong command line or configuration; 3 the agent is not running.

Examples:
  oke-node-agent why-not-ready           why new pods cannot start: run it first
  oke-node-agent attachments -o json     each pod's addresses and problems
  oke-node-agent plan                    changes that would be made now
  oke-node-agent bundle > node.tar       everything for support, without secrets
  kubectl exec -n oke-node-manager POD -- oke-node-agent bundle > node.tar";

/// The commands.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Run and keep the node in sync
    #[command(after_help = "Exit status: 2 wrong configuration; all errors are printed at once.")]
    Run,
    /// Show VNICs, sources and conditions
    #[command(after_help = "Exit status: 0 ready, 1 not ready, 3 the agent is not running.")]
    Status(Output),
    /// Show why new pods cannot start here, since when, and what to do: conditions that block new pods first
    #[command(after_help = "\
Exit status: 0 ready, 1 not ready, 3 the agent is not running.

Example, on all nodes:
  for pod in $(kubectl get pods -n oke-node-manager -l app.kubernetes.io/name=oke-node-agent -o name); do
    kubectl exec -n oke-node-manager $pod -- oke-node-agent why-not-ready; done")]
    WhyNotReady(Output),
    /// Show the addresses that pods may use and those in use
    #[command(after_help = "Exit status: 0 printed, 1 there are none, 3 the agent is not running.")]
    Pools(Output),
    /// Show each pod's interface: addresses, VNIC, host link, age and problems
    #[command(after_help = "\
Exit status: 0 printed, 1 cannot be read, 3 the agent is not running.

Examples:
  oke-node-agent attachments | grep 10.0.32.14                       which pod has this address?
  oke-node-agent attachments -o json | jq '.[] | select(.problems != [])'")]
    Attachments(Output),
    /// Print the health signals of this node: value, bound, cause and next step
    #[command(after_help = "Exit status: 0 no problem, 1 a problem, 3 the agent is not running.")]
    Health(Output),
    /// Print the changes that would be made now, and change nothing
    #[command(after_help = "Exit status: 0 printed, even if it contains changes; 3 the agent is not running.")]
    Plan(Output),
    /// Write everything about this node's network to a tar, without secrets
    #[command(after_help = "\
Links, addresses, rules, all tables, neighbours, nft chains, kernel settings, state files, CNI configurations and
binaries with their hashes, versions, the last runs of the plugins, conditions, metrics. README.txt in it names what is
missing. While the agent is down it lacks the agent's answers. Exit status: 0 written, 1 not.

Examples:
  oke-node-agent bundle --file /run/vcn-native/node.tar      a container can write to its volumes only
  kubectl exec -n oke-node-manager POD -- oke-node-agent bundle > node.tar")]
    Bundle(BundleOutput),
    /// Send the probe of a network test from a probe Pod: the request is in PROBE_REQUEST, the report becomes the container's
    /// termination message
    #[command(hide = true)]
    Probe(ProbeOutput),
    /// Carry out an operation of a NodeTask from its Pod, through systemd's bus; the report becomes the container's termination
    /// message
    #[command(hide = true, after_help = operation::AFTER)]
    Operation(OperationArgs),
    /// Print the settings and their sources
    #[command(after_help = "\
Exit status: 0 valid, 2 invalid.

Examples:
  oke-node-agent config                          the settings of this node and their sources
  oke-node-agent config --explain                every key: default, unit, meaning
  oke-node-agent config --check agent.conf       all errors of a file, before a rollout")]
    Config(ConfigArgs),
}

/// The output of `bundle`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct BundleOutput {
    /// The file to write; standard output by default
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// The output of `probe`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct ProbeOutput {
    /// The file to write: the container's termination message
    #[arg(long, default_value = "/dev/termination-log", value_name = "FILE")]
    pub message: PathBuf,
}

/// Whether something is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Permission {
    /// Allowed.
    #[value(help = None)]
    Allow,
    /// Denied.
    #[value(help = None)]
    Deny,
}

/// What the agent does about the host's network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum HostNetworking {
    /// It configures secondary VNICs and repairs their objects.
    #[default]
    Configure,
    /// It reports what differs, and changes nothing.
    Report,
    /// It neither observes nor changes anything.
    Off,
}

/// Which captures the controller may request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum CaptureScope {
    /// None.
    #[default]
    Off,
    /// State and headers of packets.
    Headers,
    /// Packets with their payload, too.
    Payload,
}

/// All settings.
#[derive(Clone, Debug, clap::Args)]
#[group(id = "agent-options")]
pub struct Options {
    /// Options of every resident program.
    #[command(flatten)]
    pub resident: ResidentOptions,
    /// State of this boot, shared with the plugins
    #[arg(long, global = true, env = "STATE_DIR", default_value = vcn::STATE_DIR, value_name = "DIR", value_parser = absolute)]
    pub state_dir: PathBuf,
    /// State across reboots
    #[arg(long, global = true, env = "DATA_DIR", default_value = "/var/lib/vcn-native", value_name = "DIR", value_parser = absolute)]
    pub data_dir: PathBuf,
    /// The instance metadata service, with its version; without IPv4: http://[fd00:c1::a9fe:a9fe]/opc/v2
    #[arg(long = "oci-metadata-base-url", global = true, env = "OCI_METADATA_BASE_URL", default_value = imds::DEFAULT_BASE_URL, value_name = "URL", value_parser = metadata_url)]
    pub metadata_url: String,
    /// A file with this node's NativePodNetwork as JSON, instead of the API server's. While the file is missing, there is
    /// none yet [default: the API server if a service account's token is mounted, else nativepodnetwork.json in the data directory]
    #[arg(long, global = true, env = "NPN_FILE", value_name = "FILE", value_parser = absolute)]
    pub npn_file: Option<PathBuf>,
    /// The name of the agent's pod, from the downward API. The agent finds its DaemonSet by this name when it stops, and
    /// signs its Events with it [default: no query, no uninstall, no Events]
    #[arg(long, global = true, env = "POD_NAME", value_name = "NAME")]
    pub pod_name: Option<String>,
    /// The name of the agent's Node, from the downward API: the object of its Events [default: no Events]
    #[arg(long, global = true, env = "NODE_NAME", value_name = "NAME")]
    pub node_name: Option<String>,
    /// Whether health signals are measured. If not, the Node's condition HostHealthy is Unknown, and no limit is raised
    #[arg(long, global = true, env = "HEALTH", value_enum, default_value = "on", value_name = "WHAT")]
    pub health: Toggle,
    /// Whether a limit of the kernel is raised where a rule of a health signal says `repair`; no shipped rule does. For repairs
    /// of our links, routes and rules see HOST_NETWORKING
    #[arg(long, global = true, env = "REPAIRS", value_enum, default_value = "on", value_name = "WHAT")]
    pub repairs: Toggle,
    /// Rules of health signals, as JSON, which override the shipped rules and those of the controller. The file need not exist
    #[arg(long, global = true, env = "HEALTH_RULES", default_value = "/etc/oke-node-agent/health-rules.json")]
    #[arg(value_name = "FILE", value_parser = absolute)]
    pub health_rules: PathBuf,
    /// The kubelet's `healthzPort`; with 0 the agent does not query the kubelet's health
    #[arg(long, global = true, env = "KUBELET_HEALTHZ_PORT", default_value = "10248", value_name = "PORT")]
    pub kubelet_healthz_port: u16,
    /// A second source about NVIDIA GPUs: the page of this node's dcgm-exporter, as `http://ADDRESS:PORT/PATH`. ADDRESS is 127.0.0.1,
    /// the word NODE_IP, or the ClusterIP of a Service with `internalTrafficPolicy: Local`; names are refused
    #[arg(long, global = true, env = "DCGM_METRICS", default_value = "off", value_name = "URL")]
    pub dcgm_metrics: DcgmMetrics,
    /// Whether conditions are reported as Kubernetes Events about the Node. This needs NODE_NAME and POD_NAME
    #[arg(long, global = true, env = "KUBERNETES_EVENTS", value_enum, default_value = "allow", value_name = "WHAT")]
    pub kubernetes_events: Permission,
    /// Whether the agent uninstalls itself from the node when its DaemonSet was deleted and no pod uses our network
    #[arg(
        long,
        global = true,
        env = "UNINSTALL_WHEN_DELETED",
        value_enum,
        default_value = "allow",
        value_name = "WHAT"
    )]
    pub uninstall_when_deleted: Permission,
    /// Where the kernel settings are mounted; /proc/sys of a container is read-only
    #[arg(long, global = true, env = "SYSCTL_ROOT", default_value = "/proc/sys", value_name = "DIR", value_parser = absolute)]
    pub sysctl_root: PathBuf,
    /// Kernel settings that NodePolicies may name on this node in addition to the table of docs/node-policies.md, with commas between
    /// them, such as `dev.raid.speed_limit_max`; the agent needs a mount for each. Keys that the agent, the kubelet or a namespace
    /// of pods owns stay refused [default: none]
    #[arg(long, global = true, env = "TUNABLE_KEYS", value_name = "KEYS", value_parser = TunableKeys::parse)]
    pub tunable_keys: Option<TunableKeys>,
    /// Which captures the controller may request of this node, for NodeTasks (docs/captures.md)
    #[arg(long, global = true, env = "CAPTURES", value_enum, default_value = "off", value_name = "WHAT")]
    pub captures: CaptureScope,
    /// The address of /healthz, /readyz and /metrics
    #[arg(long, global = true, env = "LISTEN", default_value = "127.0.0.1:9808", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// The TCP port, at NODE_IP, where the controller queries this node's health; 0 closes it. Every request is refused
    /// without a key of CONTROLLER_KEYS
    #[arg(long, global = true, env = "CHANNEL_PORT", default_value_t = 9810, value_name = "PORT")]
    pub channel_port: u16,
    /// The directory with the fingerprints of the controllers' keys, a file each, as the kubelet mounts them
    #[arg(long, global = true, env = "CONTROLLER_KEYS", default_value = "/etc/oke-node-controller-keys")]
    #[arg(value_name = "DIR", value_parser = absolute)]
    pub controller_keys: PathBuf,
    /// Whether pods may use the instance metadata service on port 80. It gives the instance's credentials to every client, but
    /// some workloads (instance principals) need it. DNS and time at the same address are always allowed
    #[arg(
        long,
        global = true,
        env = "PODS_MAY_USE_METADATA",
        value_enum,
        default_value = "allow",
        value_name = "WHAT"
    )]
    pub pods_may_use_metadata: Permission,
    /// Whether pods may send packets from foreign source addresses. Allow it for pods that route for other addresses. OCI
    /// still drops such packets unless the VNIC has skipSourceDestCheck
    #[arg(long, global = true, env = "PODS_MAY_SPOOF", value_enum, default_value = "deny", value_name = "WHAT")]
    pub pods_may_spoof: Permission,
    /// Whether secondary VNICs are configured on the host: `configure`; `report` what differs and change nothing; or `off`. Pods
    /// get addresses of configured VNICs only
    #[arg(long, global = true, env = "HOST_NETWORKING", value_enum, default_value = "configure", value_name = "WHAT")]
    pub host_networking: HostNetworking,
    /// Physical ports by name.
    #[command(flatten)]
    pub ports: Ports,
    /// For tests on machines without network cards: the kind that the kernel reports of links that stand for them. Only the command
    /// line can set it
    #[arg(long, global = true, hide = true, env = "TEST_NIC_KIND", value_name = "KIND")]
    pub test_nic_kind: Option<String>,
    /// Seconds between two reconciles without events
    #[arg(long = "resync-seconds", global = true, env = "RESYNC_SECONDS", default_value = "30", value_name = "SECONDS", value_parser = interval)]
    pub resync: Duration,
    /// Seconds for which a VNIC, or an address family of it, is kept after the metadata service stopped listing it. A listed
    /// VNIC without a link is reported after this time
    #[arg(long = "detach-grace-seconds", global = true, env = "DETACH_GRACE_SECONDS", default_value = "30", value_name = "SECONDS", value_parser = interval)]
    pub detach_grace: Duration,
    /// Seconds for which a pod's link must be missing, in two reconciles, until its addresses are freed without a DEL
    #[arg(long = "dead-after-seconds", global = true, env = "DEAD_AFTER_SECONDS", default_value = "30", value_name = "SECONDS", value_parser = interval)]
    pub dead_after: Duration,
    /// The host's file system, as seen from here, with the files of systemd, NetworkManager and oci-utils
    #[arg(long, global = true, env = "HOST_ROOT", default_value = "/", value_name = "DIR", value_parser = absolute)]
    pub host_root: PathBuf,
    /// Signals of the pod network that an operator sets.
    #[command(flatten)]
    pub signals: installer::SignalOptions,
    /// Options of the installer.
    #[command(flatten)]
    pub installer: installer::Options,
}

/// Bare metal: which links are the physical ports, for machines whose metadata does not tell.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct Ports {
    /// Bare metal: the link that is physical port 0, where the metadata service's addresses match no link
    #[arg(long = "bm-port-0", global = true, env = "BM_PORT_0", value_name = "LINK")]
    pub zero: Option<IfName>,
    /// Bare metal: the link of physical port 1
    #[arg(long = "bm-port-1", global = true, env = "BM_PORT_1", value_name = "LINK")]
    pub one: Option<IfName>,
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

/// A path that does not depend on where the program was started.
fn absolute(text: &str) -> Result<PathBuf, &'static str> {
    Some(PathBuf::from(text)).filter(|path| path.is_absolute()).ok_or("not an absolute path")
}

fn interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|error| format!("{error}"))?;
    let is_valid = (0.1..=3600.0).contains(&seconds);
    is_valid.then(|| Duration::from_secs_f64(seconds)).ok_or_else(|| "not between 0.1 and 3600 seconds".to_owned())
}

fn metadata_url(text: &str) -> Result<String, String> {
    imds::Imds::check(text).map(|()| text.to_owned()).map_err(|error| chain(&error))
}

/// All keys.
pub fn keys() -> Keys {
    Keys::of::<Options>()
}
