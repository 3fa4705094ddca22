//! The fabric: everything between the VNICs, as one pure function from a frame to frames.
//!
//! ```text
//!   port ──frame──▶ is the MAC the VNIC's? ─▶ is the address the VNIC's? ─▶ who has the destination?
//!                        │ no                     │ no                        │ does it answer ARP/NDP?
//!                        ▼                        ▼                           ▼
//!                     dropped, counted, with the reason                frame to its port
//! ```
//!
//! It does no input or output and reads no clock: [`wire`] moves the frames. Multicast and broadcast other than
//! ARP, NDP and router solicitations end here silently, as in a VCN (so do DHCP and MLD).

mod arp;
mod deliver;
mod drops;
mod frame;
mod ipv4;
mod ipv6;
mod neighbours;
mod policy;
mod port;
#[cfg(test)]
mod tests;
pub(crate) mod wire;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use smoltcp::wire::{EthernetFrame, EthernetProtocol};
use vcn::{MacAddr, Mtu};

pub use drops::{DropReason, Dropped};
pub use policy::{DeniedAt, DeniedTraffic, Noise, PathMtu, Policy, Traffic};
pub use port::{Port, VnicPort};

use drops::Drops;
use neighbours::{NeighbourTimer, Neighbours};
use policy::Rules;

/// The services' IPv4 address: metadata, DNS, time.
pub const SERVICES_V4: Ipv4Addr = vcn::METADATA_ADDRESS;
/// The iSCSI target of a boot disk, likewise on primary VNICs only.
pub const BOOT_DISK_V4: Ipv4Addr = Ipv4Addr::new(169, 254, 0, 2);
/// The services' IPv6 address, as OCI documents it for subnets with IPv6.
pub const SERVICES_V6: Ipv6Addr = vcn::METADATA_ADDRESS_V6;

/// A frame and the port it leaves by.
pub type Outgoing = (Port, Vec<u8>);

/// The outcome of one frame: frames, or a reason to drop it.
type Verdict = Result<Vec<Outgoing>, DropReason>;

/// Who sent a frame.
#[derive(Clone, Copy, Debug)]
struct Sender<'a> {
    port: Port,
    vnic: &'a VnicPort,
}

/// The state of the fabric.
#[derive(Debug)]
pub struct Fabric {
    services: (Port, MacAddr),
    vnics: BTreeMap<Port, Arc<VnicPort>>,
    neighbours: Neighbours,
    rules: Rules,
    drops: Drops,
}

impl Fabric {
    /// A fabric that carries no VNIC yet; `services` is the port and MAC of what answers on 169.254.169.254.
    pub fn new(port: Port, mac: MacAddr) -> Self {
        Self {
            services: (port, mac),
            vnics: BTreeMap::new(),
            neighbours: Neighbours::default(),
            rules: Rules::default(),
            drops: Drops::default(),
        }
    }

    /// Connects a VNIC, in place of what was at the port.
    pub fn attach(&mut self, port: Port, vnic: VnicPort) {
        self.neighbours.forget(port);
        self.vnics.insert(port, Arc::new(vnic));
    }

    /// Disconnects the VNIC at a port.
    pub fn detach(&mut self, port: Port) {
        self.neighbours.forget(port);
        self.vnics.remove(&port);
    }

    /// Replaces the policy, and forgets which flows passed.
    pub fn set_policy(&mut self, policy: Policy) {
        self.rules.set(policy);
    }

    /// The longest time for which a frame is held back, if the policy has noise.
    pub fn longest_delay(&self) -> Option<Duration> {
        self.rules.longest_delay()
    }

    /// Takes a frame that came in at `port` (without its 802.1Q tag, which is part of the port) and returns what goes out.
    /// `now` is the time since some fixed moment.
    pub fn handle(&mut self, now: Duration, port: Port, frame: &[u8]) -> Vec<Outgoing> {
        self.decide(now, port, frame).unwrap_or_else(|reason| {
            self.count(port, reason, Some(frame));
            Vec::new()
        })
    }

    /// The questions that are due again. To be called a few times per second.
    pub fn tick(&mut self, now: Duration) -> Vec<Outgoing> {
        let mut out = Vec::new();
        for due in self.neighbours.due(now) {
            match due {
                NeighbourTimer::Request((port, address)) => out.extend(self.question(port, address)),
                NeighbourTimer::GiveUp((port, address), frames) => {
                    for _ in 0..frames {
                        self.count(port, DropReason::NoAnswer(address), None);
                    }
                }
            }
        }
        out
    }

    /// The router advertisement for the VNIC at a port, if it is a primary one with IPv6.
    pub fn advertisement(&self, port: Port) -> Option<Outgoing> {
        let vnic = self.vnics.get(&port).filter(|vnic| vnic.primary)?;
        let router = vnic.subnet.router_v6()?;
        Some((port, frame::router_advertisement(vnic.subnet.router_mac, router)))
    }

    /// All router advertisements, for the regular announcement.
    pub fn advertisements(&self) -> Vec<Outgoing> {
        self.vnics.keys().filter_map(|port| self.advertisement(*port)).collect()
    }

    /// What was dropped so far.
    pub fn drops(&self) -> Vec<Dropped> {
        self.drops.list()
    }

    fn decide(&mut self, now: Duration, port: Port, bytes: &[u8]) -> Verdict {
        let frame = EthernetFrame::new_checked(bytes).map_err(|_| DropReason::Malformed("Ethernet frame"))?;
        let carried = usize::try_from(Mtu::VCN.0).unwrap_or(usize::MAX);
        if frame.payload().len() > carried {
            return Err(DropReason::TooLong(frame.payload().len()));
        }
        if port == self.services.0 {
            return self.sent_by_services(now, &frame, bytes);
        }
        let vnic = self.vnics.get(&port).cloned().ok_or(DropReason::NoVnic(port.tag))?;
        let source = MacAddr(frame.src_addr().0);
        if source != vnic.mac {
            return Err(DropReason::ForeignMac(source));
        }
        let from = Sender { port, vnic: &vnic };
        match frame.ethertype() {
            EthernetProtocol::Arp => self.arp(now, from, frame.payload()),
            EthernetProtocol::Ipv4 => self.ipv4(now, from, bytes),
            EthernetProtocol::Ipv6 => self.ipv6(now, from, bytes),
            EthernetProtocol::Unknown(other) => Err(DropReason::EtherType(other)),
        }
    }

    /// The VNIC that holds an address.
    fn holder(&self, address: IpAddr) -> Option<(Port, Arc<VnicPort>)> {
        self.vnics.iter().find(|(_, vnic)| vnic.owns(address)).map(|(port, vnic)| (*port, Arc::clone(vnic)))
    }

    fn count(&mut self, port: Port, reason: DropReason, frame: Option<&[u8]>) {
        let at = self.vnics.get(&port).map_or_else(|| port.to_string(), |vnic| vnic.label.clone());
        self.drops.count(&at, reason, frame);
    }
}
