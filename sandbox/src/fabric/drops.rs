//! What the fabric dropped, and why. The real fabric drops silently; this one exists to report the reason.

use std::collections::BTreeMap;
use std::net::IpAddr;

use smoltcp::wire::{EthernetFrame, PrettyPrinter};
use thiserror::Error;
use vcn::{MacAddr, VlanTag};

/// The most distinct (port, reason) pairs remembered; later ones are counted as [`DropReason::Overflow`], so that a
/// sender of random addresses cannot fill the memory.
const MOST_REASONS: usize = 1024;

/// Why a frame was dropped.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Error)]
pub enum DropReason {
    /// Not a packet.
    #[error("malformed {0}")]
    Malformed(&'static str),
    /// No VNIC has this place.
    #[error("no VNIC is here ({})", .0.map_or_else(|| "untagged".to_owned(), |tag| format!("tag {tag}")))]
    NoVnic(Option<VlanTag>),
    /// Anti-spoofing, Ethernet.
    #[error("source MAC {0} is not the VNIC's")]
    ForeignMac(MacAddr),
    /// Anti-spoofing, IP.
    #[error("source address {0} is not the VNIC's")]
    ForeignSource(IpAddr),
    /// Anti-spoofing, ARP and NDP.
    #[error("ARP or NDP speaks for {0}, which is not the VNIC's")]
    ForeignNeighbour(IpAddr),
    /// The services answer on the primary VNIC only.
    #[error("169.254.169.254 is reached through the primary VNIC only")]
    MetadataFromSecondary,
    /// Another 169.254.0.0/16 address.
    #[error("no service has the link-local address {0}")]
    NoSuchService(IpAddr),
    /// Neither the router's MAC nor the destination's.
    #[error("destination MAC {0} is neither the router's nor the destination's")]
    WrongMac(MacAddr),
    /// No VNIC holds the destination.
    #[error("no VNIC has the address {0}")]
    NoHolder(IpAddr),
    /// The VNIC that holds it does not answer ARP or NDP for it.
    #[error("{0} did not answer ARP or NDP")]
    NoAnswer(IpAddr),
    /// Too many frames were waiting for an answer to ARP or NDP.
    #[error("too many frames wait for {0} to answer ARP or NDP")]
    QueueFull(IpAddr),
    /// No rule of the destination's subnet or VNIC admits it.
    #[error("no security rule admits the packet to {0}")]
    SecurityRule(IpAddr),
    /// The route table of the source's subnet has no route.
    #[error("the subnet's route table has no route to {0}")]
    NoRoute(IpAddr),
    /// The hop limit ran out.
    #[error("the hop limit ran out on the way to {0}")]
    HopLimit(IpAddr),
    /// Longer than the VCN carries.
    #[error("{0} bytes are more than the VCN's MTU")]
    TooLong(usize),
    /// The router answers nothing but echo requests.
    #[error("the virtual router answers echo requests only")]
    RouterOnlyEchoes,
    /// Neither ARP nor IP.
    #[error("EtherType {0:#06x} is not carried")]
    EtherType(u16),
    /// Too many different reasons.
    #[error("other reasons, too many to list")]
    Overflow,
}

/// Frames dropped at one place for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Where: the VNIC's label, or the port where there is none.
    pub at: String,
    /// Why.
    pub reason: DropReason,
    /// How many.
    pub frames: u64,
    /// The headers of the first of them: addresses, ports, TCP's flags. `None` for a frame that waited for an answer to ARP or
    /// NDP.
    pub first: Option<String>,
}

/// The counters.
#[derive(Debug, Default)]
pub(super) struct Drops(BTreeMap<(String, DropReason), Counted>);

#[derive(Debug, Default)]
struct Counted {
    frames: u64,
    first: Option<String>,
}

impl Drops {
    pub(super) fn count(&mut self, at: &str, reason: DropReason, frame: Option<&[u8]>) {
        tracing::debug!(at, %reason, "frame dropped");
        let mut key = (at.to_owned(), reason);
        if self.0.len() >= MOST_REASONS && !self.0.contains_key(&key) {
            key = (String::new(), DropReason::Overflow);
        }
        let counted = self.0.entry(key).or_default();
        if counted.frames == 0 {
            counted.first = frame.map(described);
        }
        counted.frames += 1;
    }

    pub(super) fn list(&self) -> Vec<Dropped> {
        self.0
            .iter()
            .map(|((at, reason), Counted { frames, first })| Dropped {
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
