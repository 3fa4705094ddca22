//! Why a NetworkTest is refused.

use std::net::IpAddr;

use thiserror::Error;

/// The largest number of pairs of one run.
pub(crate) const MAX_PAIRS: usize = 2_000;

/// Why a test has no pairs.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum PairError {
    /// Network tests are switched off.
    #[error("network tests are switched off: NETWORK_TEST_TARGETS=none on the controller")]
    Off,
    /// A target outside the cluster.
    #[error(
        "the target {0} is not an address of a node or a Service: set externalTargets, and NETWORK_TEST_TARGETS=any on the controller; or add the Services' network to its SERVICE_NETWORKS"
    )]
    External(String),
    /// An address that is not the node's.
    #[error(
        "the target {1} is neither an InternalIP of {0} nor an address of its VnicAttachments: correct it, or set externalTargets, and NETWORK_TEST_TARGETS=any on the controller"
    )]
    Foreign(String, IpAddr),
    /// A source that is not the node's.
    #[error("the source address {1} is neither an InternalIP of {0} nor an address of its VnicAttachments: correct it")]
    ForeignSource(String, IpAddr),
    /// A URL that cannot be read.
    #[error("the target {0} is not an http or https URL")]
    Url(String),
    /// An address that is never probed.
    #[error("the target {0} is never probed: loopback, link-local, multicast and the metadata service are excluded")]
    Forbidden(IpAddr),
    /// A selector that is not valid.
    #[error("a selector is not valid: {0}")]
    Selector(String),
    /// Pods that cannot be listed.
    #[error("{0}")]
    Pods(String),
    /// Throughput to or from something without an agent.
    #[error(
        "Throughput is measured between nodes with agents, at addresses of the Node and its VnicAttachments: {0} is none"
    )]
    Throughput(String),
    #[error(
        "no pair: no selected node has a known agent, no selected pod runs, source and target are the same node, or they share no address family"
    )]
    None,
    /// Too much to test.
    #[error("{0} pairs are more than {MAX_PAIRS}: select fewer nodes, or the service peers as the target")]
    TooMany(usize),
}
