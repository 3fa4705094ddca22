//! What is known about the cluster's pod network: an operator's setting, and what the caller read. This crate reads no API.

/// The node label that OKE sets to `true` or `false`: the strongest signal.
pub(crate) const NODE_LABEL: &str = "oci.oraclecloud.com/vcn-native-ip-cni";

/// The instance metadata key that self-managed nodes are started with.
pub const METADATA_KEY: &str = "oke-native-pod-networking";

/// OKE's own CNI, a DaemonSet in kube-system. It assigns the same addresses as our plugin.
pub const OKE_DAEMONSET: &str = "vcn-native-ip-cni";

/// The CNI configuration that OKE's own CNI writes.
pub(crate) const OKE_CONFLIST: &str = "10-oci.conflist";

/// What the caller read; by default nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Signals")]
pub struct Signals {
    /// Signals that the agent has as options, too.
    #[command(flatten)]
    pub set: SignalOptions,
    /// The value of oke-native-pod-networking in the instance's metadata
    #[arg(long = "signal-instance-metadata", env = "SIGNAL_INSTANCE_METADATA", value_name = "true|false")]
    pub instance_metadata: Option<String>,
    /// The NativePodNetwork named after this instance
    #[arg(
        long = "signal-native-pod-network",
        env = "SIGNAL_NATIVE_POD_NETWORK",
        value_enum,
        default_value_t,
        value_name = "SEEN"
    )]
    pub native_pod_network: Presence,
    /// VNICs of the NativePodNetwork with applicationResources: they prevent a takeover
    #[arg(
        long = "signal-application-resources",
        env = "SIGNAL_APPLICATION_RESOURCES",
        value_enum,
        default_value_t,
        value_name = "SEEN"
    )]
    pub application_resources: Presence,
}

/// Signals that an operator may set for the agent, too.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct SignalOptions {
    /// The value of the node label oci.oraclecloud.com/vcn-native-ip-cni, which the agent does not read itself; unset: no such
    /// signal
    #[arg(long = "signal-node-label", env = "SIGNAL_NODE_LABEL", value_name = "true|false")]
    pub node_label: Option<String>,
    /// The DaemonSet kube-system/vcn-native-ip-cni; unknown: the agent queries the API server
    #[arg(
        long = "signal-oke-daemonset",
        env = "SIGNAL_OKE_DAEMONSET",
        value_enum,
        default_value_t,
        value_name = "SEEN"
    )]
    pub oke_daemonset: Presence,
}

/// Whether something was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Presence {
    /// It was not read, or reading failed.
    #[default]
    Unknown,
    /// It is not there.
    Absent,
    /// It is there.
    Present,
}

/// Which pod network this is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum PodNetwork {
    /// The signals decide.
    #[default]
    Auto,
    /// VCN-native pod networking, whatever the signals say.
    VcnNative,
    /// Another one, whatever the signals say.
    None,
}

/// What can decide. Display writes stable words: they are in reports, metrics and documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    /// The operator's setting POD_NETWORK.
    Setting,
    /// The label [`NODE_LABEL`] of this node.
    NodeLabel,
    /// The key [`METADATA_KEY`] of the instance's metadata.
    InstanceMetadata,
    /// The NativePodNetwork of this instance.
    NativePodNetwork,
    /// The DaemonSet [`OKE_DAEMONSET`] of OKE's own CNI.
    OkeDaemonSet,
    /// A configuration of OKE's own CNI in the configuration directory.
    OkeConflist,
    /// Pods of OKE's own CNI on this node, or it cannot be known.
    OkePods,
    /// VNICs that are kept for application resources on a node that OKE's own CNI serves.
    ApplicationResources,
    /// A configuration of Flannel's in the configuration directory.
    FlannelConflist,
    /// No signal was found that decides.
    Nothing,
}

vcn::words!(
    Signal: Setting = "setting",
    NodeLabel = "node-label",
    InstanceMetadata = "instance-metadata",
    NativePodNetwork = "native-pod-network",
    OkeDaemonSet = "oke-daemonset",
    OkeConflist = "oke-conflist",
    OkePods = "oke-pods",
    ApplicationResources = "application-resources",
    FlannelConflist = "flannel-conflist",
    Nothing = "nothing",
);

impl From<bool> for Presence {
    fn from(present: bool) -> Self {
        if present { Self::Present } else { Self::Absent }
    }
}
