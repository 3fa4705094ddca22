//! The command line, as typed, and with it the list of all that can be set: every option that names a variable is a key of
//! the environment and of the configuration file, too (see [`resident::config`]).

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use installer::Seen;
use resident::args::{ConfigArgs, LogLevel, Output};
use resident::command_line::CONFIG_FILE;
use resident::config::keys::Keys;

/// Runs on every node: configures its secondary VNICs, publishes the addresses pods may have, puts the CNI plugins in
/// place and reports. The pods' own path needs none of it: while it is down, pods come and go as before.
#[derive(Clone, Debug, Parser)]
#[command(name = "oke-node-agent", version, after_help = AFTER)]
pub struct Args {
    /// What to do; `run` when nothing is said
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The configuration: lines of KEY=value, the keys being the variables below. One that is asked for must be there
    #[arg(long = "config", global = true, env = CONFIG_FILE, default_value = DEFAULT_CONFIG)]
    #[arg(value_name = "FILE")]
    pub config: PathBuf,
    /// Everything that can be set.
    #[command(flatten)]
    pub options: Options,
}

/// Where the configuration file is, if there is one.
pub const DEFAULT_CONFIG: &str = "/etc/oke-node-agent/agent.conf";

const AFTER: &str = "\
Flags outrank the environment, the environment outranks the file. `oke-node-agent config --explain` says more of each key.

Exit status: 0 fine; 1 not ready, or failed; 2 called or configured wrongly; 3 the agent is not running (what could be
found out without it is told all the same).

Examples:
  oke-node-agent why-not-ready           the first thing to ask
  oke-node-agent attachments -o json     who has which address, and what is wrong with it
  oke-node-agent plan                    what would be changed now
  oke-node-agent bundle > node.tar       everything that support asks for, without secrets
  kubectl exec -n kube-system POD -- oke-node-agent bundle > node.tar";

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Stay and keep the node as it should be
    #[command(after_help = "Exit status: 2 configured wrongly; everything that is wrong is said at once.")]
    Run,
    /// Say how the node is: VNICs, sources, conditions
    #[command(after_help = "Exit status: 0 ready, 1 not ready, 3 the agent is not running.")]
    Status(Output),
    /// Say why new pods cannot start here: since when, and what to do, the worst first
    #[command(after_help = "\
Exit status: 0 ready, 1 not ready, 3 the agent is not running.

Example, on all nodes:
  for pod in $(kubectl get pods -n kube-system -l app.kubernetes.io/name=oke-node-agent -o name); do
    kubectl exec -n kube-system $pod -- oke-node-agent why-not-ready; done")]
    WhyNotReady(Output),
    /// Say which addresses pods may have and which they hold
    #[command(after_help = "Exit status: 0 told, 1 there are none, 3 the agent is not running.")]
    Pools(Output),
    /// Say each pod's interface: its addresses, VNIC, host link, age, and what is wrong with it
    #[command(after_help = "\
Exit status: 0 told, 1 cannot be read, 3 the agent is not running.

Examples:
  oke-node-agent attachments | grep 10.0.32.14                       whose address is this?
  oke-node-agent attachments -o json | jq '.[] | select(.problems != [])'")]
    Attachments(Output),
    /// Say what would be changed now, and change nothing
    #[command(after_help = "Exit status: 0 told, whatever it is; 3 the agent is not running.")]
    Plan(Output),
    /// Write down everything about this node's network into a tar, without secrets
    #[command(after_help = "\
Links, addresses, rules, all tables, neighbours, the nft ruleset, kernel settings, state files, CNI configurations and
binaries with their hashes, versions, the last runs of the plugins, conditions, metrics. What was left out is said in its
README.txt. Works while the agent is down. Exit status: 0 written, 1 not.

Examples:
  oke-node-agent bundle -o /run/vcn-native/node.tar          a container can write to its volumes only
  kubectl exec -n kube-system POD -- oke-node-agent bundle > node.tar")]
    Bundle(BundleOutput),
    /// Say what is set, and by whom
    #[command(after_help = "\
Exit status: 0 in order, 2 not.

Examples:
  oke-node-agent config                          what is set on this node, and where
  oke-node-agent config --explain                every key: default, unit, meaning
  oke-node-agent config --check agent.conf       before it is rolled out: everything that is wrong with it")]
    Config(ConfigArgs),
}

/// Where a bundle goes.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct BundleOutput {
    /// The file to write; standard output when nothing is said
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Whether something may be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Permission {
    /// It may.
    Allow,
    /// It may not.
    Deny,
}

/// What the agent does about the host's network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum HostNetworking {
    /// It configures secondary VNICs and repairs what is ours.
    #[default]
    Configure,
    /// It reports what differs, and changes nothing.
    Report,
    /// It neither looks nor changes anything.
    Off,
}

/// Everything that can be set. What is a DIR, FILE, URL or ADDRESS is taken at the start, the rest while the agent runs.
#[derive(Clone, Debug, clap::Args)]
#[group(id = "agent-options")]
pub struct Options {
    /// State of this boot, shared with the plugins
    #[arg(long, global = true, env = "STATE_DIR", default_value = vcn::STATE_DIR, value_name = "DIR")]
    pub state_dir: PathBuf,
    /// What the agent learnt and must know after a reboot
    #[arg(long, global = true, env = "DATA_DIR", default_value = "/var/lib/vcn-native", value_name = "DIR")]
    pub data_dir: PathBuf,
    /// The instance metadata service, its version included; without IPv4: http://[fd00:c1::a9fe:a9fe]/opc/v2
    #[arg(long, global = true, env = "OCI_METADATA_BASE_URL", default_value = imds::DEFAULT_BASE_URL, value_name = "URL")]
    pub imds_base_url: String,
    /// The NativePodNetwork of this node as JSON, instead of the API server's; a file that is not there means that there is
    /// none yet [default: the API server, where a service account's token is mounted; else nativepodnetwork.json in the
    /// data directory]
    #[arg(long, global = true, env = "NPN_FILE", value_name = "FILE")]
    pub npn_file: Option<PathBuf>,
    /// What the agent's pod is called, from the downward API: the DaemonSet that made it is asked for when the pod is stopped,
    /// and events are told in its name [default: nothing is asked for, everything stays, no Events]
    #[arg(long, global = true, env = "POD_NAME", value_name = "NAME")]
    pub pod_name: Option<String>,
    /// What the agent's Node is called, from the downward API: by its name and the pod's, conditions are told as Kubernetes
    /// Events about it [default: no Events]
    #[arg(long, global = true, env = "NODE_NAME", value_name = "NAME")]
    pub node_name: Option<String>,
    /// Whether conditions that come and go are told as Kubernetes Events about the Node, where the agent runs in a cluster and
    /// knows its Node's name and its pod's
    #[arg(long, global = true, env = "KUBERNETES_EVENTS", value_enum, default_value = "allow", value_name = "WHAT")]
    pub kubernetes_events: Permission,
    /// Whether everything of ours is taken off the node when the agent is stopped because its DaemonSet was deleted, and no
    /// pod lives by it
    #[arg(
        long,
        global = true,
        env = "UNINSTALL_WHEN_DELETED",
        value_enum,
        default_value = "allow",
        value_name = "WHAT"
    )]
    pub uninstall_when_deleted: Permission,
    /// Kernel settings, as seen from here; a container's /proc/sys is read-only
    #[arg(long, global = true, env = "SYSCTL_ROOT", default_value = "/proc/sys", value_name = "DIR")]
    pub sysctl_root: PathBuf,
    /// Where /healthz, /readyz and /metrics are served
    #[arg(long, global = true, env = "LISTEN", default_value = "127.0.0.1:9808", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Whether pods may ask the instance metadata service on port 80. It hands out the instance's credentials to whoever
    /// asks, but some workloads (instance principals) live by it. DNS and time on the same address are always allowed
    #[arg(
        long,
        global = true,
        env = "PODS_MAY_USE_METADATA",
        value_enum,
        default_value = "allow",
        value_name = "WHAT"
    )]
    pub pods_may_use_metadata: Permission,
    /// Whether pods may send packets from addresses that are not theirs. The fabric drops such packets where they leave the
    /// node by a VNIC that lacks the address; the node drops the others, unless a pod is to be a router for addresses of its
    /// own
    #[arg(long, global = true, env = "PODS_MAY_SPOOF", value_enum, default_value = "deny", value_name = "WHAT")]
    pub pods_may_spoof: Permission,
    /// Whether secondary VNICs are configured on the host: `configure`; `report` what differs and change nothing; or `off`. Pods
    /// get addresses of configured VNICs only
    #[arg(long, global = true, env = "HOST_NETWORKING", value_enum, default_value = "configure", value_name = "WHAT")]
    pub host_networking: HostNetworking,
    /// Bare metal: the link that is physical port 0, where the metadata service's addresses match no link
    #[arg(long, global = true, env = "BM_PORT_0", value_name = "LINK")]
    pub bm_port_0: Option<String>,
    /// Bare metal: the link that is physical port 1
    #[arg(long, global = true, env = "BM_PORT_1", value_name = "LINK")]
    pub bm_port_1: Option<String>,
    /// How often everything is looked at when nothing seems to happen, in seconds
    #[arg(long, global = true, env = "RESYNC_SECONDS", default_value_t = 30.0, value_name = "SECONDS")]
    pub resync_seconds: f64,
    /// How long a VNIC that the metadata service no longer lists, or a family that it lists none of its addresses of, is kept,
    /// in seconds. A VNIC that is listed may lack its link for as long before that is reported
    #[arg(long, global = true, env = "DETACH_GRACE_SECONDS", default_value_t = 30.0, value_name = "SECONDS")]
    pub detach_grace_seconds: f64,
    /// How long a pod's link must have been missing, in two looks, until its addresses are freed without a DEL, in
    /// seconds
    #[arg(long, global = true, env = "DEAD_AFTER_SECONDS", default_value_t = 30.0, value_name = "SECONDS")]
    pub dead_after_seconds: f64,
    /// The host's file system, as seen from here: systemd's, NetworkManager's and oci-utils' files are looked at below it
    #[arg(long, global = true, env = "HOST_ROOT", default_value = "/", value_name = "DIR")]
    pub host_root: PathBuf,
    /// Whether drop-ins may be written below it that make systemd-networkd and NetworkManager, where they run, leave pods'
    /// links, routes and rules and secondary VNICs alone
    #[arg(long, global = true, env = "HOST_DROP_INS", value_enum, default_value = "deny", value_name = "WHAT")]
    pub host_drop_ins: Permission,
    /// The least that is logged
    #[arg(long, global = true, env = "LOG_LEVEL", value_enum, default_value = "info", value_name = "LEVEL")]
    pub log_level: LogLevel,
    /// The value of the node label oci.oraclecloud.com/vcn-native-ip-cni
    #[arg(long, global = true, env = "SIGNAL_NODE_LABEL", value_name = "true|false")]
    pub node_label: Option<String>,
    /// The DaemonSet kube-system/vcn-native-ip-cni; unknown: the API server is asked
    #[arg(
        long,
        global = true,
        env = "SIGNAL_OKE_DAEMONSET",
        value_enum,
        default_value = "unknown",
        value_name = "SEEN"
    )]
    pub oke_daemonset: Seen,
    /// The DaemonSet kube-system/kube-flannel-ds
    #[arg(
        long,
        global = true,
        env = "SIGNAL_FLANNEL_DAEMONSET",
        value_enum,
        default_value = "unknown",
        value_name = "SEEN"
    )]
    pub flannel_daemonset: Seen,
    /// What the installer takes.
    #[command(flatten)]
    pub installer: installer::Options,
}

/// Every key.
#[must_use]
pub fn keys() -> Keys {
    Keys::of::<Options>()
}
