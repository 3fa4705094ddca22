//! The kinds of probes, as a NetworkTest names them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vcn::words;

/// The kind of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ProbeKind {
    /// Echo requests.
    #[serde(rename = "ICMP")]
    Icmp,
    /// Connections.
    #[serde(rename = "TCP")]
    Tcp,
    /// Datagrams; an answer or "port unreachable" shows that they arrive.
    #[serde(rename = "UDP")]
    Udp,
    /// GET requests without redirects.
    #[serde(rename = "HTTP")]
    Http,
    /// The same by TLS, whose certificate is not verified.
    #[serde(rename = "HTTPS")]
    Https,
    /// Queries.
    #[serde(rename = "DNS")]
    Dns,
    /// Full-size echo requests that no router may fragment.
    #[serde(rename = "PathMTU")]
    PathMtu,
    /// The kernel's route lookup, without a packet.
    Route,
    /// Data at a bounded rate from one agent to another.
    Throughput,
}

words!(
    ProbeKind: Icmp = "ICMP",
    Tcp = "TCP",
    Udp = "UDP",
    Http = "HTTP",
    Https = "HTTPS",
    Dns = "DNS",
    PathMtu = "PathMTU",
    Route,
    Throughput,
);

impl ProbeKind {
    /// Its name with a port, where it has one: `TCP/443`.
    pub fn with_port(self, port: u16) -> String {
        if port == 0 { self.as_str().to_owned() } else { format!("{}/{port}", self.as_str()) }
    }
}
