//! The command line, as typed. Every option may come from the environment instead, as a DaemonSet sets it.

use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::{ArgAction, Parser};

use crate::{PodNetwork, Seen, Signals};

/// Puts the VCN-native CNI binaries and configuration on this node, where the cluster uses VCN-native pod networking.
///
/// Prints the decision, the signal that decided, and what was (or, with --dry-run, would be) changed. Signals are given
/// as options, because this command asks no API; the node agent gathers them itself. With none of them, nothing is
/// touched. Exit status: 0 the node is as decided, 1 something failed, 64 called wrongly.
#[derive(Clone, Debug, Parser)]
#[command(name = "oke-cni-installer", version)]
pub struct Args {
    /// What the agent takes too.
    #[command(flatten)]
    pub options: Options,
    /// What is known about the cluster's pod network.
    #[command(flatten)]
    pub signals: SignalArgs,
    /// A pod could get an address now: write the configuration too, not only the binaries
    #[arg(long, env = "CNI_USABLE", action = ArgAction::SetTrue, value_parser = BoolishValueParser::new())]
    pub usable: bool,
    /// Say what would be done and do nothing
    #[arg(long, env = "CNI_DRY_RUN", action = ArgAction::SetTrue, value_parser = BoolishValueParser::new())]
    pub dry_run: bool,
}

/// The options that the agent shares.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Whose pod network this is: outranks every signal
    #[arg(long, env = "POD_NETWORK", value_enum, default_value = "auto", value_name = "WHOSE")]
    pub pod_network: PodNetwork,
    /// Install although OKE's own vcn-native-ip-cni is present; it hands out the same addresses, so the node must not
    /// have pods of its network
    #[arg(long, env = "CNI_TAKEOVER", action = ArgAction::SetTrue, value_parser = BoolishValueParser::new())]
    pub takeover: bool,
    /// Put portmap into the chain, for host ports, where its binary exists
    #[arg(long, env = "CNI_PORTMAP", action = ArgAction::Set, default_value = "true", value_name = "true|false")]
    #[arg(value_parser = BoolishValueParser::new())]
    pub portmap: bool,
    /// Where the container runtime looks for CNI binaries, as seen from here
    #[arg(long, env = "CNI_BIN_DIR", default_value = "/opt/cni/bin", value_name = "DIR")]
    pub cni_bin_dir: PathBuf,
    /// Where the container runtime looks for CNI configurations, as seen from here
    #[arg(long, env = "CNI_CONF_DIR", default_value = "/etc/cni/net.d", value_name = "DIR")]
    pub cni_conf_dir: PathBuf,
    /// Where the plugin binaries to install are
    #[arg(long, env = "CNI_SOURCE_DIR", default_value = "/usr/libexec/vcn-native", value_name = "DIR")]
    pub source_dir: PathBuf,
}

/// The signals, as typed.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Signals, the strongest first")]
pub struct SignalArgs {
    /// The value of the node label oci.oraclecloud.com/vcn-native-ip-cni
    #[arg(long, env = "SIGNAL_NODE_LABEL", value_name = "true|false")]
    pub node_label: Option<String>,
    /// The value of oke-native-pod-networking in the instance's metadata
    #[arg(long, env = "SIGNAL_INSTANCE_METADATA", value_name = "true|false")]
    pub instance_metadata: Option<String>,
    /// The NativePodNetwork named after this instance
    #[arg(long, env = "SIGNAL_NATIVE_POD_NETWORK", value_enum, default_value = "unknown", value_name = "SEEN")]
    pub native_pod_network: Seen,
    /// The DaemonSet kube-system/vcn-native-ip-cni
    #[arg(long, env = "SIGNAL_OKE_DAEMONSET", value_enum, default_value = "unknown", value_name = "SEEN")]
    pub oke_daemonset: Seen,
    /// The DaemonSet kube-system/kube-flannel-ds
    #[arg(long, env = "SIGNAL_FLANNEL_DAEMONSET", value_enum, default_value = "unknown", value_name = "SEEN")]
    pub flannel_daemonset: Seen,
}

impl From<SignalArgs> for Signals {
    fn from(args: SignalArgs) -> Self {
        Self {
            node_label: args.node_label,
            instance_metadata: args.instance_metadata,
            native_pod_network: args.native_pod_network,
            oke_daemonset: args.oke_daemonset,
            flannel_daemonset: args.flannel_daemonset,
        }
    }
}
