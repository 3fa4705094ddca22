//! What is not as it should be, in stable words that alerts and runbooks can rely on, with a sentence for people.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// The stable word.
    pub reason: Reason,
    /// Whether new pods suffer.
    pub severity: Severity,
    /// What it is about (a VNIC, a file), where there may be several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// What is the matter and, where we know, what to do.
    pub message: String,
    /// When it was first seen, in milliseconds since 1970; a restart of the agent begins anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_unix_millis: Option<u64>,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// New pods cannot start. The agent is not ready either, but for [`Reason::leaves_ready`].
    Blocking,
    /// Pods start; something else is missing.
    Degraded,
}

/// The stable words. Never renamed: alerts match on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Reason {
    /// No pass has ended yet.
    Starting,
    /// The metadata service does not answer.
    MetadataUnavailable,
    /// The NativePodNetwork could not be read.
    NativePodNetworkUnreadable,
    /// There is no NativePodNetwork yet, or OKE has not finished it.
    NativePodNetworkPending,
    /// The primary VNIC has no link.
    PrimaryLinkMissing,
    /// A secondary VNIC has no link.
    LinkMissing,
    /// The NativePodNetwork names a VNIC that the metadata service does not list.
    VnicNotListed,
    /// The metadata service lists a VNIC without a family that it had, and that the NativePodNetwork has pods' addresses of.
    VnicFamilyNotListed,
    /// The metadata service's entry of a VNIC cannot be used.
    VnicUnreadable,
    /// All addresses of a family that could be the host's own at a VNIC are held by pods.
    HostAddressTaken,
    /// There are more VNICs than marks: a NodePort at a VNIC's own address does not answer where its pod is another VNIC's.
    ReturnPathMissing,
    /// A VNIC has addresses for pods but nobody says by which router.
    RouterUnknown,
    /// A source names addresses of a VNIC that are no usable host addresses of its subnet.
    AddressRefused,
    /// Every VNIC of the NativePodNetwork is kept for an application resource.
    ApplicationResourcesOnly,
    /// The kernel refused part of the host's network.
    HostNetworkFailed,
    /// The host's network differs from what is desired, and the configuration says to report that only.
    HostNetworkDrifted,
    /// The VnicAttachments of this node could not be read.
    VnicAttachmentsUnreadable,
    /// Somebody else has routes in the table that leads to pods.
    PodTableShared,
    /// The kernel has no nf_tables for family inet.
    KernelLacksNft,
    /// Our nft table could not be written.
    NftFailed,
    /// No address is there for pods.
    NoUsableAddress,
    /// Pods hold every address.
    AddressesExhausted,
    /// A state file could not be read or written.
    StateFailed,
    /// A running pod lacks something on the host, and it could not be repaired.
    PodNetworkBroken,
    /// A firewall stops what is forwarded, and so pods' packets.
    ForwardingRejected,
    /// Somebody undoes our repairs, again and again.
    RepairsUndone,
    /// The system does not tell of changes to the kernel's network or to files.
    ChangesUnheard,
    /// The port of health and metrics cannot be had.
    PortUnavailable,
    /// A network manager removes what is ours, or configures a VNIC's link.
    NetworkManagerInterferes,
    /// Somebody else configures a VNIC, too.
    ConflictingConfiguration,
    /// A drop-in for a network manager could not be written or removed.
    DropInFailed,
    /// A pod is gone, but not all of its network.
    AttachmentLeftOver,
    /// The node has another pod network now, or an unknown one, and objects of our pod network are still there.
    LeftInPlace,
    /// The CNI binaries or configuration could not be put in place.
    InstallerFailed,
    /// A file that the container runtime reads before our CNI configuration is none, and stops some runtimes.
    RuntimeConfigurationBlocked,
    /// The container runtime takes another CNI configuration, which sorts before ours.
    RuntimeConfigurationPreceded,
    /// Our CNI configuration is on a node whose pod network is not ours.
    RuntimeConfigurationLeft,
    /// The node is left to OKE's own CNI, and has no CNI configuration.
    RuntimeConfigurationMissing,
    /// A plugin that is to be in our chain is there and does not answer as it should.
    PluginUnanswered,
    /// A plugin that others put into our chain has no binary.
    PluginMissing,
    /// The configuration file is wrong or gone; the last good one is used.
    ConfigurationInvalid,
    /// The configuration file asks for what only a restart can do.
    RestartNeeded,
}

impl Reason {
    /// Whether the agent stays ready although new pods cannot start: the node works as it should, and is full.
    #[must_use]
    pub const fn leaves_ready(self) -> bool {
        matches!(self, Self::AddressesExhausted)
    }

    /// Whether looking again within seconds may end it, without any event telling us.
    #[must_use]
    pub const fn is_retried_soon(self) -> bool {
        matches!(
            self,
            Self::HostNetworkFailed
                | Self::NftFailed
                | Self::StateFailed
                | Self::InstallerFailed
                | Self::PluginUnanswered
                | Self::PodNetworkBroken
                | Self::AttachmentLeftOver
        )
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // As in JSON.
        f.write_str(self.word())
    }
}

impl Condition {
    /// A condition that stops new pods.
    #[must_use]
    pub fn blocking(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, severity: Severity::Blocking, subject: None, message: message.into(), since_unix_millis: None }
    }

    /// A condition that pods survive.
    #[must_use]
    pub fn degraded(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, severity: Severity::Degraded, subject: None, message: message.into(), since_unix_millis: None }
    }

    /// Says what it is about.
    #[must_use]
    pub fn about(mut self, subject: impl fmt::Display) -> Self {
        self.subject = Some(subject.to_string());
        self
    }

    /// Whether it stops new pods.
    #[must_use]
    pub const fn blocks(&self) -> bool {
        matches!(self.severity, Severity::Blocking)
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.reason)?;
        if let Some(subject) = &self.subject {
            write!(f, " ({subject})")?;
        }
        write!(f, ": {}", self.message)
    }
}
