//! Which findings have the same cause: the agent's conditions and health signals overlap, and so does what the kubelet reports.

use health::fleet::{NODE_NOT_READY, lacks_pod_network_only};
use health::reason::Reason;

/// Findings, and the one that says the same and more.
const SAME_CAUSE: &[(&str, &[&str])] = &[
    ("forwarding_rejected", &["ForwardingRejected"]),
    ("manager_interference", &["NetworkManagerInterferes", "ConflictingConfiguration", "RepairsUndone"]),
    ("pool_free", &["AddressesExhausted"]),
    ("vnic_repairs", &["RepairsUndone"]),
    (
        "vnic_problems",
        &[
            "PrimaryLinkMissing",
            "LinkMissing",
            "VnicNotListed",
            "VnicFamilyNotListed",
            "VnicUnreadable",
            "RouterUnknown",
            "HostNetworkFailed",
            "PodTableShared",
            "KernelLacksNft",
            "NftFailed",
        ],
    ),
    ("metadata_latency", &["MetadataUnavailable"]),
    ("kubelet_healthy", &["kubelet_running"]),
    ("kubelet_latency", &["kubelet_healthy", "kubelet_running"]),
    (NODE_NOT_READY, &["kubelet_running", "kubelet_healthy", "runtime_running"]),
];

/// Findings without which new pods would start.
const STOPPING: &[&str] = &[NODE_NOT_READY, "kubelet_running", "kubelet_healthy", "runtime_running"];

/// Whether a problem keeps new pods from starting, whatever the agent says.
pub(crate) fn stops_pods(name: &str) -> bool {
    STOPPING.contains(&name)
}

/// A problem that may be the cause of another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cause<'a> {
    pub name: &'a str,
    /// Whether no new pod can start because of it.
    pub blocks_pods: bool,
}

/// Whether a finding only repeats another one. A kubelet that lacks nothing but the pod network is not the cause where the agent says
/// why no pod can start.
pub(crate) fn repeats<'a>(name: &str, message: &str, mut causes: impl Iterator<Item = Cause<'a>>) -> bool {
    let same = SAME_CAUSE.iter().find(|(repeated, _)| *repeated == name).map_or(&[][..], |(_, causes)| causes);
    let is_consequence = name == NODE_NOT_READY && lacks_pod_network_only(message);
    causes.any(|cause| {
        let explains = cause.blocks_pods && Reason::from_word(cause.name).is_some();
        same.contains(&cause.name) || is_consequence && explains
    })
}
