//! Units of systemd that a policy may restart, because it changed their files.

use serde::{Deserialize, Serialize};

/// A unit. They are restarted in this order: the kubelet last, because the others are what it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum HostUnit {
    /// Sets the kernel settings of sysctl.d.
    #[serde(rename = "systemd-sysctl.service")]
    SystemdSysctl,
    /// Keeps the time.
    #[serde(rename = "chronyd.service")]
    Chronyd,
    /// OCI's agent.
    #[serde(rename = "oracle-cloud-agent.service")]
    OracleCloudAgent,
    /// Configures links.
    #[serde(rename = "NetworkManager.service")]
    NetworkManager,
    /// A container runtime.
    #[serde(rename = "crio.service")]
    Crio,
    /// A container runtime.
    #[serde(rename = "containerd.service")]
    Containerd,
    /// The kubelet.
    #[serde(rename = "kubelet.service")]
    Kubelet,
}

vcn::words!(
    HostUnit: SystemdSysctl = "systemd-sysctl.service",
    Chronyd = "chronyd.service",
    OracleCloudAgent = "oracle-cloud-agent.service",
    NetworkManager = "NetworkManager.service",
    Crio = "crio.service",
    Containerd = "containerd.service",
    Kubelet = "kubelet.service",
);

impl HostUnit {
    /// Whether the node may become unreachable if it does not start again: then no Pod can repair it.
    pub const fn is_guarded(self) -> bool {
        matches!(self, Self::NetworkManager | Self::Crio | Self::Containerd | Self::Kubelet)
    }
}
