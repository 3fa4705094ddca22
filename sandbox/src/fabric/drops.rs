//! What the fabric dropped, and why. The real fabric drops silently; this one exists to report the reason.

use std::collections::BTreeMap;
use std::net::IpAddr;

use smoltcp::wire::{EthernetFrame, PrettyPrinter};
use thiserror::Error;
use vcn::{MacAddr, VlanTag};

/// Why a frame was dropped.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Error)]
#[expect(missing_docs, reason = "each variant's message says it")]
pub enum DropReason {
    #[error("malformed {0}")]
    Malformed(&'static str),
    #[error("no VNIC is here ({})", .0.map_or_else(|| "untagged".to_owned(), |tag| format!("tag {tag}")))]
    NoVnic(Option<VlanTag>),
    #[error("source MAC {0} is not the VNIC's")]
    ForeignMac(MacAddr),
    #[error("source address {0} is not the VNIC's")]
    ForeignSource(IpAddr),
    #[error("ARP or NDP speaks for {0}, which is not the VNIC's")]
    ForeignNeighbour(IpAddr),
    #[error("169.254.169.254 is reached through the primary VNIC only")]
    MetadataFromSecondary,
    #[error("no service has the link-local address {0}")]
    NoSuchService(IpAddr),
    #[error("destination MAC {0} is neither the router's nor the destination's")]
    WrongMac(MacAddr),
    #[error("no VNIC has the address {0}")]
    NoHolder(IpAddr),
    #[error("{0} did not answer ARP or NDP")]
    NoAnswer(IpAddr),
    #[error("too many frames wait for {0} to answer ARP or NDP")]
    QueueFull(IpAddr),
    #[error("no security rule admits the packet to {0}")]
    SecurityRule(IpAddr),
    #[error("the VNIC's table of connections is full: a new one to {0}")]
    TooManyConnections(IpAddr),
    #[error("the subnet's route table has no route to {0}")]
    NoRoute(IpAddr),
    #[error("the packet to {0} is one of those that are lost by chance")]
    Chance(IpAddr),
    #[error("the hop limit ran out on the way to {0}")]
    HopLimit(IpAddr),
    #[error("{0} bytes are more than the VCN's MTU")]
    TooLong(usize),
    #[error("the virtual router answers echo requests only")]
    RouterOnlyEchoes,
    #[error("EtherType {0:#06x} is not carried")]
    EtherType(u16),
}

/// Frames dropped at one place for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Where: the VNIC's label, or the port where there is none.
    pub at: String,
    /// The rule of OCI that drops them.
    pub reason: DropReason,
    /// The number of dropped frames.
    pub frames: u64,
    /// The headers of the first of them: addresses, ports, TCP's flags. `None` for a frame that waited for an answer to ARP or
    /// NDP.
    pub first: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Drops(BTreeMap<(String, DropReason), DropCount>);

#[derive(Debug, Default)]
struct DropCount {
    frames: u64,
    first: Option<String>,
}

impl Drops {
    pub(super) fn count(&mut self, at: &str, reason: DropReason, frame: Option<&[u8]>) {
        tracing::debug!(at, %reason, "frame dropped");
        let counted = self.0.entry((at.to_owned(), reason)).or_default();
        if counted.frames == 0 {
            counted.first = frame.map(described);
        }
        counted.frames += 1;
    }

    pub(super) fn list(&self) -> Vec<Dropped> {
        self.0
            .iter()
            .map(|((at, reason), DropCount { frames, first })| Dropped {
                at: at.clone(),
                reason: reason.clone(),
                frames: *frames,
                first: first.clone(),
            })
            .collect()
    }
}

/// A frame's headers in one line.
fn described(frame: &[u8]) -> String {
    let layers = PrettyPrinter::<EthernetFrame<&[u8]>>::new("", &frame).to_string();
    layers.lines().map(|layer| layer.trim_start_matches([' ', '\\'])).collect::<Vec<_>>().join("; ")
}
