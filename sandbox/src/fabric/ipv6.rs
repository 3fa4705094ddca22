//! IPv6 packets from a VNIC, neighbour discovery included.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{EthernetFrame, Icmpv6Packet, Icmpv6Repr, IpProtocol, Ipv6Packet, NdiscRepr};

use super::frame::{self, Pair};
use super::{DropReason, Fabric, SERVICES_V6, Sender, Verdict};

impl Fabric {
    pub(super) fn ipv6(&mut self, now: Duration, from: Sender<'_>, bytes: &[u8]) -> Verdict {
        let Sender { port, vnic } = from;
        let frame = EthernetFrame::new_unchecked(bytes);
        let packet = Ipv6Packet::new_checked(frame.payload()).map_err(|_| DropReason::Malformed("IPv6 packet"))?;
        if packet.version() != 6 {
            return Err(DropReason::Malformed("IPv6 header"));
        }
        let (source, destination) = (packet.src_addr(), packet.dst_addr());
        let local_only = source.is_unspecified() || source.is_unicast_link_local();
        if !local_only && !vnic.owns(IpAddr::V6(source)) {
            return Err(DropReason::ForeignSource(source.into()));
        }
        let message = parse_icmpv6(&packet);
        if let Some(Icmpv6Repr::Ndisc(ndisc)) = message {
            return if packet.hop_limit() == 255 {
                self.ndp(now, from, source, ndisc)
            } else {
                Err(DropReason::Malformed("NDP message (hop limit is not 255)"))
            };
        }
        if destination.is_multicast() {
            return Ok(Vec::new());
        }
        if vnic.subnet.router_v6() == Some(destination) {
            let Some(Icmpv6Repr::EchoRequest { ident, seq_no, data }) = message else {
                return Err(DropReason::RouterOnlyEchoes);
            };
            let pair = Pair { from: (vnic.subnet.router_mac, destination), to: (vnic.mac, source) };
            return Ok(vec![(port, frame::icmpv6(pair, Icmpv6Repr::EchoReply { ident, seq_no, data }))]);
        }
        if local_only {
            return Err(DropReason::ForeignSource(source.into()));
        }
        if destination == SERVICES_V6 {
            return self.to_services(vnic, bytes);
        }
        self.deliver(now, from, destination.into(), bytes)
    }

    fn ndp(&mut self, now: Duration, from: Sender<'_>, source: Ipv6Addr, message: NdiscRepr<'_>) -> Verdict {
        let Sender { port, vnic } = from;
        match message {
            NdiscRepr::RouterSolicit { .. } => Ok(self.advertisement(port).into_iter().collect()),
            NdiscRepr::NeighborSolicit { target_addr, .. } => self.solicited(from, source, target_addr),
            NdiscRepr::NeighborAdvert { target_addr, .. } => {
                let target = IpAddr::V6(target_addr);
                if vnic.owns(target) {
                    Ok(self.answered(now, port, target))
                } else if target_addr.is_unicast_link_local() {
                    Ok(Vec::new())
                } else {
                    Err(DropReason::ForeignNeighbour(target))
                }
            }
            NdiscRepr::RouterAdvert { .. } | NdiscRepr::Redirect { .. } => {
                Err(DropReason::ForeignNeighbour(source.into()))
            }
        }
    }

    fn solicited(&self, Sender { port, vnic }: Sender<'_>, source: Ipv6Addr, target: Ipv6Addr) -> Verdict {
        let router = vnic.subnet.router_v6() == Some(target);
        let mac = if router {
            vnic.subnet.router_mac
        } else if source.is_unspecified() {
            // Duplicate address detection: silence means that the address is free to use.
            let own = target.is_unicast_link_local() || vnic.owns(target.into());
            return if own { Ok(Vec::new()) } else { Err(DropReason::ForeignNeighbour(target.into())) };
        } else if vnic.owns(target.into()) {
            return Ok(Vec::new());
        } else {
            let holder = self.holder(target.into()).filter(|(_, holder)| holder.subnet.id == vnic.subnet.id);
            holder.ok_or(DropReason::NoHolder(target.into()))?.1.mac
        };
        if source.is_unspecified() {
            // Duplicate address detection for the router's address, which no VNIC may take.
            return Err(DropReason::ForeignNeighbour(target.into()));
        }
        let pair = Pair { from: (mac, target), to: (vnic.mac, source) };
        Ok(vec![(port, frame::neighbour_advertisement(pair, target, router))])
    }
}

/// The ICMPv6 message of a packet, where it is one that the fabric must understand and its checksum is right.
fn parse_icmpv6<'a>(packet: &Ipv6Packet<&'a [u8]>) -> Option<Icmpv6Repr<'a>> {
    if packet.next_header() != IpProtocol::Icmpv6 {
        return None;
    }
    let message = Icmpv6Packet::new_checked(packet.payload()).ok()?;
    let (source, destination) = (packet.src_addr(), packet.dst_addr());
    Icmpv6Repr::parse(&source, &destination, &message, &ChecksumCapabilities::default()).ok()
}
