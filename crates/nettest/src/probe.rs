//! What the controller and an agent exchange for network tests: one request, one report, versioned JSON. Requests are read
//! strictly, and only within [`bounds`]; reports may have fields of a later version.
//!
//! ```text
//!   controller ──ProbeRequest──▶ agent A   send: probes, with what A's host shows before and after
//!                              ▶ agent B   watch: counts the packets of the same flow meanwhile
//!                              ▶ agent B   open: sends one packet of the flow in the other direction first
//!                              ▶ agent B   receive: takes what A sends to measure throughput, and discards it
//!              ◀─ProbeReport──
//! ```

pub mod bounds;
mod evidence;
mod report;

use std::net::IpAddr;

pub use api::ProbeKind;
use api::TargetService;
use serde::{Deserialize, Serialize};

pub use bounds::{ProbeError, REQUEST_MAX};
pub use evidence::{Change, Evidence, Party, Trial};
pub use report::{Failure, HostState, ObservedRoute, ProbeReport, Received, Tally, TapCount, Taps};

/// The version of the protocol.
pub const PROBE_VERSION: u8 = 1;
/// Where the agent takes requests.
pub const PROBE_PATH: &str = "/v1/probe";

/// Where Throughput connects to if nothing else is said: the port of iperf3, which many security lists name already.
pub const THROUGHPUT_PORT: u16 = 5201;

/// A request to an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProbeRequest {
    /// The version of the request: [`PROBE_VERSION`].
    pub version: u8,
    /// The task of the agent.
    pub task: Task,
}

/// What an agent does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Task {
    /// Sends probes and counts answers.
    Send(SendTask),
    /// Counts the packets of a flow.
    Watch(WatchTask),
    /// Sends one packet of a flow in the other direction, so that stateful rules on the path know the flow.
    Open(Flow),
    /// Takes the data of one probe of throughput, and discards it.
    Receive(ReceiveTask),
}

/// Probes that the agent sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SendTask {
    /// The kind of the probes.
    pub kind: ProbeKind,
    /// The source address, one of the node's; the kernel's choice if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// The address or name to which they go.
    pub target: ProbeTarget,
    /// The target's port; 0 where the kind has none.
    #[serde(default)]
    pub port: u16,
    /// The source's port, or the identifier of ICMP; the kernel's choice if 0.
    #[serde(default)]
    pub source_port: u16,
    /// The number of probes.
    pub count: u8,
    /// Milliseconds between two probes.
    pub interval_ms: u16,
    /// Milliseconds until one counts as lost.
    pub timeout_ms: u16,
    /// Bytes of an IP packet, its header included, of ICMP and PathMTU; the least if 0.
    #[serde(default)]
    pub size: u16,
    /// Whether packets leave by the link that has the source address, whatever the routes say.
    #[serde(default)]
    pub force_link: bool,
    /// The name that DNS resolves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The path that HTTP requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Whether DNS uses TCP.
    #[serde(default)]
    pub over_tcp: bool,
    /// The megabits per second that Throughput sends; absent for other kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mbits: Option<u16>,
}

/// Where to receive the data of a probe of throughput.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReceiveTask {
    /// The address to listen on, one of the node's.
    pub address: IpAddr,
    /// The port to listen on.
    pub port: u16,
    /// The only sender whose connections are accepted.
    pub from: IpAddr,
    /// For how many milliseconds at most.
    pub for_ms: u16,
}

/// A flow to count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WatchTask {
    /// The flow, as its first packet has it.
    pub flow: Flow,
    /// For how many milliseconds.
    pub for_ms: u16,
}

/// The packets between two addresses that belong together, as the first one has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Flow {
    /// The transport protocol of the packets.
    pub protocol: Transport,
    /// The address from which they come.
    pub source: IpAddr,
    /// The address to which they go.
    pub target: IpAddr,
    /// The source's port, or the identifier of ICMP; any if 0.
    pub source_port: u16,
    /// The target's port; any if 0.
    pub port: u16,
}

/// The protocol of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// ICMP of the addresses' family.
    Icmp,
    /// TCP with its ports.
    Tcp,
    /// UDP with its ports.
    Udp,
}

impl Transport {
    /// The protocol that a probe's packets use; a lookup has none.
    pub const fn of(kind: ProbeKind) -> Option<Self> {
        match kind {
            ProbeKind::Icmp | ProbeKind::PathMtu => Some(Self::Icmp),
            ProbeKind::Tcp | ProbeKind::Http | ProbeKind::Https | ProbeKind::Throughput => Some(Self::Tcp),
            ProbeKind::Udp | ProbeKind::Dns => Some(Self::Udp),
            ProbeKind::Route => None,
        }
    }
}

/// The address or name to which probes go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ProbeTarget {
    /// An address, which needs no resolver.
    Address(IpAddr),
    /// A name, which the agent resolves.
    Host(String),
    /// A service that each node has; never peers.
    Service(TargetService),
}
