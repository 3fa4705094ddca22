//! An agent's answer to a probe request: what came back, and what its host shows before and after.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};

use super::bounds::THROUGHPUT_MS;

/// The report of one task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProbeReport {
    /// The version of the protocol.
    pub version: u8,
    /// Probes and answers, of a task that sends.
    pub tally: Tally,
    /// The address that the probes had as their source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// The address that they went to: a name's or a service's, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<IpAddr>,
    /// The subnet of the source address, if the link's address says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnet: Option<IpNetwork>,
    /// All subnets of the link that has the source address, or of a watched flow's target: a VNIC is in one subnet, which has a
    /// network of each family.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub link_subnets: Vec<IpNetwork>,
    /// The kernel's route for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<ObservedRoute>,
    /// What arrived, of a task that receives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received: Option<Received>,
    /// Their packets on this host's links.
    pub taps: Taps,
    /// The host before the first.
    pub before: HostState,
    /// The host after the last.
    pub after: HostState,
}

/// What a receiver of Throughput took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Received {
    /// The last address that connected: the sender's, or one that was turned away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<IpAddr>,
    /// Bytes of the sender.
    pub bytes: u64,
    /// From the first of them to the last, in microseconds.
    pub micros: u64,
    /// For how many milliseconds it listened.
    pub listened_ms: u32,
}

/// Probes and answers in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Tally {
    /// Probes sent, or attempted.
    pub sent: u16,
    /// The number of probes that were answered.
    pub received: u16,
    /// The most frequent failure of the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// The round-trip times in microseconds, in order, at most 100.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub micros: Vec<u32>,
}

/// Why a probe has no answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Failure {
    /// Nothing came back in time.
    Silence,
    /// The target refused the connection, or has no socket on the port: the packet arrived.
    Refused,
    /// An ICMP error "prohibited", and its sender.
    Prohibited(IpAddr),
    /// Another ICMP error, and its sender.
    Unreachable(IpAddr),
    /// A router or this host needs a smaller packet: the MTU, and the router where it was one.
    TooBig {
        /// The MTU in bytes.
        mtu: u32,
        /// The router; this host if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<IpAddr>,
    },
    /// This host did not send it: the error's name.
    Local(String),
    /// The target's name has no address: why.
    Unresolved(String),
    /// An HTTP status of 400 or more.
    Status(u16),
    /// An answer that is none: its meaning.
    Invalid(String),
    /// The path carried less than was to be sent.
    Slow {
        /// What it carried, in megabits per second.
        mbits: u32,
        /// What was to be sent.
        of: u16,
    },
}

/// A route as the kernel finds it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObservedRoute {
    /// The link by which packets leave; empty where the kernel has no route.
    pub device: String,
    /// The link that has the source address.
    pub expected: String,
    /// The next hop; none on the link itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
}

/// Packets of the flow on this host's links.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Taps {
    /// Packets of the probe that left the host.
    pub out: TapCount,
    /// Those that came in, before netfilter.
    #[serde(rename = "in")]
    pub inward: TapCount,
    /// Whether packets may be missing here: the tap could not be opened, or lost some.
    pub incomplete: bool,
}

/// Packets on one side of a host's links.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TapCount {
    /// The number of packets.
    pub packets: u32,
    /// The link of the last one.
    pub device: String,
}

/// What a host's kernel counts that explains lost packets. A number is absent where the kernel does not have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostState {
    /// Packets that the reverse-path filter dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rp_filter_drops: Option<u64>,
    /// The reverse-path filter of the link: 0 off, 1 strict, 2 loose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rp_filter: Option<u8>,
    /// Entries of the neighbour table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub neighbours: Option<u64>,
    /// The limit of the neighbour table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub neighbour_limit: Option<u64>,
    /// Entries that it could not take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub neighbour_overflows: Option<u64>,
    /// The number of tracked connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u64>,
    /// The limit of tracked connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection_limit: Option<u64>,
    /// Packets dropped because the table of connections was full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection_drops: Option<u64>,
    /// Connections lost because two packets raced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub insert_failures: Option<u64>,
}

impl Received {
    /// The rate in megabits per second, of data that was sent for [`THROUGHPUT_MS`]: if it arrived in less time, the path
    /// carried nothing at the end.
    pub fn mbits(&self) -> u32 {
        u32::try_from(self.bytes.saturating_mul(8) / self.counted_micros()).unwrap_or(u32::MAX)
    }

    /// Whether nine tenths of a rate arrived.
    pub fn is_enough(&self, mbits: u16) -> bool {
        self.bytes.saturating_mul(80) >= u64::from(mbits) * 9 * self.counted_micros()
    }

    fn counted_micros(&self) -> u64 {
        let sending = u64::from(THROUGHPUT_MS) * 1_000;
        // The last chunk leaves a little before the end.
        self.micros.max(sending - sending / 50)
    }
}

impl Tally {
    /// Whether packets reach the target: it answers, or refuses the port.
    pub fn reaches(&self) -> bool {
        self.failure == Some(Failure::Refused) || (self.received > 0 && !self.fails())
    }

    /// Whether more is missing than chance explains: everything, or three and a fifth.
    pub fn fails(&self) -> bool {
        let lost = self.lost();
        lost > 0 && (self.received == 0 || (lost >= 3 && lost.saturating_mul(5) >= self.sent))
    }

    /// Probes without an answer.
    pub const fn lost(&self) -> u16 {
        self.sent.saturating_sub(self.received)
    }
}
