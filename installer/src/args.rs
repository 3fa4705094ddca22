//! The command line as typed. Every option can also be set in the environment.

use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::{ArgAction, Parser, Subcommand, ValueEnum};

use crate::signals::{PodNetwork, Signals};

const EXAMPLES: &str = "Examples:
  oke-cni-installer --dry-run --signal-node-label true --cni-usable    what would be done on a node of a VCN-native cluster
  oke-cni-installer uninstall --dry-run                     what would be taken off this node, or why not now";

/// State across reboots.
pub(crate) const DATA_DIR: &str = "/var/lib/vcn-native";

const CNI_CACHE_DIR: &str = "/var/lib/cni";
const OKE_STATE_DIR: &str = "/dev/shm/oci-cni";

/// Installs the VCN-native CNI binaries and configuration if the cluster uses VCN-native pod networking.
///
/// Prints the decision, the signal that decided, and the changes (with --dry-run: planned changes). Signals are options,
/// because this command reads no API; the node agent reads them itself. Without any signal, it changes nothing. Exit status:
/// 0 in sync with the decision, 1 failure, 64 usage error, 75 refused for now (uninstall).
#[derive(Clone, Debug, Parser)]
#[command(name = "oke-cni-installer", version, args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub struct Args {
    /// A command other than install
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Options that the agent also has.
    #[command(flatten)]
    pub options: Options,
    /// Directories of our own state.
    #[command(flatten)]
    pub state: StateDirectories,
    /// A pod can get an address: also write the configuration
    #[arg(long, env = "CNI_USABLE", action = ArgAction::SetTrue, value_parser = BoolishValueParser::new())]
    pub cni_usable: bool,
    /// Print what would be done and do nothing
    #[arg(long)]
    pub dry_run: bool,
    // Last, because its heading stays until another one comes.
    /// Signals about the cluster's pod network.
    #[command(flatten)]
    pub signals: Signals,
}

/// Other commands.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Remove all of our files and objects from this node: configurations and binaries (earlier files are restored), routes, rules, pod
    /// links, nft tables, kernel settings, state
    ///
    /// Refuses with exit status 75 while pods of our network run here, or while the node agent or another installer runs, which
    /// would install everything again; in a pod also while a DaemonSet of agents exists that does not exclude this node. It can be repeated. Exit status 1: the
    /// output names what could not be removed. For a whole cluster, use manifests/uninstall.
    Uninstall(Box<UninstallArgs>),
    /// Do nothing until SIGTERM: keeps a pod ready after its init container finished (manifests/uninstall)
    #[command(hide = true)]
    Idle,
}

/// The options of uninstall.
#[derive(Clone, Debug, clap::Args)]
pub struct UninstallArgs {
    /// Directories of the host.
    #[command(flatten)]
    pub directories: Directories,
    /// Directories of our own state.
    #[command(flatten)]
    pub state: StateDirectories,
    /// Where the kernel settings are mounted; /proc/sys of a container is read-only
    #[arg(long, env = "SYSCTL_ROOT", default_value = "/proc/sys", value_name = "DIR")]
    pub sysctl_root: PathBuf,
    /// The host's file system, as seen from here; transparent huge pages are below its /sys/kernel/mm
    #[arg(long, env = "HOST_ROOT", default_value = "/", value_name = "DIR")]
    pub host_root: PathBuf,
    /// Continue although pods of our network run here (they lose it), or the agent's DaemonSet exists or cannot be read
    #[arg(long)]
    pub force: bool,
    /// Print the plan and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Directories of our own state; the agent has options of the same names.
#[derive(Clone, Debug, clap::Args)]
pub struct StateDirectories {
    /// State of this boot, shared with the plugins
    #[arg(long, env = "STATE_DIR", default_value = vcn::STATE_DIR, value_name = "DIR")]
    pub state_dir: PathBuf,
    /// State across reboots: the record, and copies of earlier files
    #[arg(long, env = "DATA_DIR", default_value = DATA_DIR, value_name = "DIR")]
    pub data_dir: PathBuf,
}

/// The options that the agent also has.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The pod network of this node; outranks every signal
    #[arg(long, env = "POD_NETWORK", value_enum, default_value = "auto", value_name = "NETWORK")]
    pub pod_network: PodNetwork,
    /// Install although OKE's own vcn-native-ip-cni is present. It assigns the same addresses, so a takeover waits until no pod
    /// of it runs on the node
    #[arg(long, env = "CNI_TAKEOVER", action = ArgAction::SetTrue, value_parser = BoolishValueParser::new())]
    pub cni_takeover: bool,
    /// The plugins chained after our plugin, in order, each if its binary exists: portmap, bandwidth, tuning, vnic-attach; or a JSON
    /// array of names and whole entries, ["portmap", {"type": "tuning", "sysctl": {…}}]
    #[arg(long, env = "CNI_CHAIN", default_value = "portmap", value_name = "LIST")]
    pub cni_chain: String,
    /// The largest MTU of a pod's link; by default the VNIC's
    #[arg(long, env = "POD_MTU", value_name = "BYTES")]
    pub pod_mtu: Option<u32>,
    /// Extra interfaces for pods that request them (vnic-attach). auto: in our own configuration. on: on another pod network as
    /// well, through a copy of its configuration that sorts first. off: nowhere
    #[arg(long, env = "VNIC_ATTACH", value_enum, default_value = "auto", value_name = "WHERE")]
    pub vnic_attach: VnicAttach,
    /// Where things are.
    #[command(flatten)]
    pub directories: Directories,
    /// Where the container runtime caches plugin results, as seen from here: shows pods (takeover)
    #[arg(long, env = "CNI_CACHE_DIR", default_value = CNI_CACHE_DIR, value_name = "DIR")]
    pub cni_cache_dir: PathBuf,
    /// Where OKE's own CNI keeps its used addresses: shows its pods (takeover)
    #[arg(long, env = "OKE_STATE_DIR", default_value = OKE_STATE_DIR, value_name = "DIR")]
    pub oke_state_dir: PathBuf,
}

/// Where pods may have extra interfaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum VnicAttach {
    /// On our own pod network
    #[default]
    Auto,
    /// On any
    On,
    /// Nowhere
    Off,
}

/// Where things are, as seen from here.
#[derive(Clone, Debug, clap::Args)]
pub struct Directories {
    /// The container runtime's directory of CNI binaries, as mounted here
    #[arg(long, env = "CNI_BIN_DIR", default_value = "/opt/cni/bin", value_name = "DIR")]
    pub cni_bin_dir: PathBuf,
    /// The container runtime's directory of CNI configurations, as mounted here
    #[arg(long, env = "CNI_CONF_DIR", default_value = "/etc/cni/net.d", value_name = "DIR")]
    pub cni_conf_dir: PathBuf,
    /// The directory with the plugin binaries to install
    #[arg(long, env = "CNI_SOURCE_DIR", default_value = "/usr/libexec/vcn-native", value_name = "DIR")]
    pub cni_source_dir: PathBuf,
}
