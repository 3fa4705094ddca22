//! What is known about one pair: the probe itself, what the target's host saw meanwhile, and trials that each change one
//! thing. Diagnosis reads nothing else.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::report::{ProbeReport, Received, Tally};
use super::{ProbeKind, Transport};
use api::TargetService;

/// The evidence about one pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    /// The kind of probe.
    pub kind: ProbeKind,
    /// The target's port; 0 where the kind has none.
    #[serde(default)]
    pub port: u16,
    /// Whether the source address was requested; else the kernel chose it.
    #[serde(default)]
    pub source_requested: bool,
    /// Where the probes start.
    pub source: Party,
    /// The party to which the probes go.
    pub target: Party,
    /// The service, where the target is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<TargetService>,
    /// What the source's agent reports.
    pub attempt: ProbeReport,
    /// What the target's agent received, of a probe of throughput.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<Received>,
    /// What the target's agent saw of the same packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrival: Option<ProbeReport>,
    /// The probes with one thing changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trials: Vec<Trial>,
}

/// One end of a pair.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Party {
    /// The Node, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The address, once it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
}

/// A probe with one thing changed, and its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Trial {
    /// The change from the first probe.
    pub change: Change,
    /// Which of several neighbours sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbour: Option<u8>,
    /// The result of the changed probe.
    pub tally: Tally,
    /// Packets of it that came in at the target's VNIC, if its agent watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrived: Option<u32>,
}

/// What a trial changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Change {
    /// Nothing: the same probe again.
    Again,
    /// Another port of the target.
    OtherPort,
    /// Another protocol: an echo request, or TCP instead of one.
    OtherProtocol,
    /// The target sends a packet of the flow in the other direction first.
    OpenedByTarget,
    /// The target sends that packet: whether it arrives at the source.
    FromTarget,
    /// Another node of the source's subnet sends.
    SubnetNeighbour,
    /// A node of another subnet sends.
    OtherSubnet,
    /// A node of the target's subnet sends.
    TargetNeighbour,
    /// Another node, whichever, sends.
    OtherNode,
    /// The same source sends to another node.
    OtherTarget,
    /// The target sends to the source, from the link by which the packet came in.
    ForcedLink,
    /// Echo requests of full size that no router may fragment.
    FullSize,
    /// The packets are small.
    SmallPacket,
    /// The kernel chooses the source address: the host's own.
    OwnAddress,
    /// One request per second.
    SlowRate,
    /// The lookup was repeated over TCP.
    OverTcp,
}

impl Trial {
    /// A trial that nothing else is known about.
    pub const fn new(change: Change, tally: Tally) -> Self {
        Self { change, neighbour: None, tally, arrived: None }
    }
}

impl Evidence {
    /// The trials with this change.
    pub fn trials(&self, change: Change) -> impl Iterator<Item = &Trial> {
        self.trials.iter().filter(move |trial| trial.change == change)
    }

    /// The result of a trial, if it was made.
    pub fn trial(&self, change: Change) -> Option<&Tally> {
        self.trials(change).next().map(|trial| &trial.tally)
    }

    /// Whether a trial reaches the target, if it was made: of several, one.
    pub fn reaches(&self, change: Change) -> Option<bool> {
        self.trials(change).map(|trial| trial.tally.reaches()).reduce(|one, other| one || other)
    }

    /// The protocol of the packets.
    pub const fn transport(&self) -> Option<Transport> {
        Transport::of(self.kind)
    }
}
