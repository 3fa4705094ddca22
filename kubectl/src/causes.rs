//! Which findings have the same cause: the agent's conditions and health signals overlap, and so does what the kubelet reports.

use health::fleet::NODE_NOT_READY;

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

/// What the runtimes write where only the pod network is missing.
const NO_POD_NETWORK: &str = "NetworkPluginNotReady";

/// Whether a problem keeps new pods from starting, whatever the agent says.
pub(crate) fn stops_pods(name: &str) -> bool {
    STOPPING.contains(&name)
}

/// Whether a finding only repeats another one, which is a problem too. A kubelet that misses the pod network is not the cause where
/// the agent says why it is missing.
pub(crate) fn repeats(name: &str, message: &str, is_open: impl Fn(&str) -> bool) -> bool {
    let same = SAME_CAUSE.iter().filter(|(repeated, _)| *repeated == name).flat_map(|(_, causes)| *causes);
    let is_consequence = || {
        let mut blocking = health::reason::Reason::ALL.iter().map(|reason| reason.as_str());
        name == NODE_NOT_READY && message.contains(NO_POD_NETWORK) && blocking.any(&is_open)
    };
    same.into_iter().any(|cause| is_open(cause)) || is_consequence()
}
