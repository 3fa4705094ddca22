//! From an accepted packet to a frame at its destination's port; packets from and to the services.

use std::net::IpAddr;
use std::time::Duration;

use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetFrame, EthernetProtocol, Icmpv6Packet, Ipv4Packet, Ipv6Packet, NdiscRepr,
};
use vcn::MacAddr;

use super::frame::{self, Pair};
use super::neighbours::Lookup;
use super::policy::Decision;
use super::{BOOT_DISK_V4, DropReason, Fabric, Outgoing, Port, SERVICES_V4, SERVICES_V6, Sender, Verdict, VnicPort};

impl Fabric {
    /// Delivers a checked packet to a VNIC: unchanged within the subnet when it was addressed to the VNIC itself, else as a
    /// router does.
    pub(super) fn deliver(&mut self, now: Duration, from: Sender<'_>, destination: IpAddr, bytes: &[u8]) -> Verdict {
        let (port, holder) = self.holder(destination).ok_or(DropReason::NoHolder(destination))?;
        if port == from.port {
            // A VNIC's own address coming back to it: the real fabric would not turn the packet around either.
            return Err(DropReason::NoHolder(destination));
        }
        match self.rules.decide(from.vnic, &holder, bytes) {
            Decision::Pass => {}
            Decision::Drop(reason) => return Err(reason),
            Decision::TooBig(frame) => return Ok(vec![(from.port, frame)]),
        }
        let addressed = MacAddr(EthernetFrame::new_unchecked(bytes).dst_addr().0);
        let mut frame = bytes.to_vec();
        let same_subnet = holder.subnet.id == from.vnic.subnet.id;
        if addressed == from.vnic.subnet.router_mac {
            frame::decrement_hop_limit(&mut frame, destination)?;
            frame::readdress(&mut frame, holder.subnet.router_mac, holder.mac);
        } else if !(same_subnet && addressed == holder.mac) {
            return Err(DropReason::WrongMac(addressed));
        }
        self.hand_over(now, port, destination, frame)
    }

    /// Delivers a packet to the services.
    pub(super) fn to_services(&self, vnic: &VnicPort, bytes: &[u8]) -> Verdict {
        let (port, mac) = self.services;
        if !vnic.primary {
            return Err(DropReason::MetadataFromSecondary);
        }
        let mut frame = bytes.to_vec();
        frame::readdress(&mut frame, vnic.subnet.router_mac, mac);
        Ok(vec![(port, frame)])
    }

    /// A packet from the services: they may send to addresses of primary VNICs, and reach all of them through one router.
    pub(super) fn sent_by_services(&mut self, now: Duration, frame: &EthernetFrame<&[u8]>, bytes: &[u8]) -> Verdict {
        let (source, destination): (IpAddr, IpAddr) = match frame.ethertype() {
            EthernetProtocol::Arp => return self.arp_of_services(frame.payload()),
            EthernetProtocol::Ipv4 => {
                let packet =
                    Ipv4Packet::new_checked(frame.payload()).map_err(|_| DropReason::Malformed("IPv4 packet"))?;
                (packet.src_addr().into(), packet.dst_addr().into())
            }
            EthernetProtocol::Ipv6 => {
                let packet =
                    Ipv6Packet::new_checked(frame.payload()).map_err(|_| DropReason::Malformed("IPv6 packet"))?;
                if let Some(answer) = self.ndp_of_services(&packet) {
                    return Ok(vec![answer]);
                }
                (packet.src_addr().into(), packet.dst_addr().into())
            }
            EthernetProtocol::Unknown(other) => return Err(DropReason::EtherType(other)),
        };
        if destination.is_multicast() || source.is_unspecified() {
            return Ok(Vec::new());
        }
        if ![IpAddr::V4(SERVICES_V4), IpAddr::V4(BOOT_DISK_V4), IpAddr::V6(SERVICES_V6)].contains(&source) {
            return Err(DropReason::ForeignSource(source));
        }
        let (port, vnic) =
            self.holder(destination).filter(|(_, v)| v.primary).ok_or(DropReason::NoHolder(destination))?;
        let mut out = bytes.to_vec();
        frame::readdress(&mut out, vnic.subnet.router_mac, vnic.mac);
        self.hand_over(now, port, destination, out)
    }

    /// The ARP or NDP question for an address of the VNIC at a port, sent to the VNIC's MAC, which the fabric knows. Linux
    /// answers broadcast questions for addresses that it is a proxy for (pods) only after a random time of up to 0.8 s.
    pub(super) fn question(&self, port: Port, address: IpAddr) -> Option<Outgoing> {
        let vnic = self.vnics.get(&port)?;
        let subnet = &vnic.subnet;
        let mut frame = match address {
            IpAddr::V4(address) => frame::arp_request(subnet.router_mac, subnet.router_v4()?, address),
            IpAddr::V6(address) => frame::neighbour_solicitation(subnet.router_mac, subnet.router_v6()?, address),
        };
        frame::readdress(&mut frame, subnet.router_mac, vnic.mac);
        Some((port, frame))
    }

    /// An address answered: sends what waited for it.
    pub(super) fn answered(&mut self, now: Duration, port: Port, address: IpAddr) -> Vec<Outgoing> {
        self.neighbours.answered(now, (port, address)).into_iter().map(|frame| (port, frame)).collect()
    }

    fn hand_over(&mut self, now: Duration, port: Port, address: IpAddr, frame: Vec<u8>) -> Verdict {
        match self.neighbours.offer(now, (port, address), frame) {
            Lookup::Known(frame) => Ok(vec![(port, frame)]),
            Lookup::Request => Ok(self.question(port, address).into_iter().collect()),
            Lookup::Waiting => Ok(Vec::new()),
            Lookup::Full => Err(DropReason::QueueFull(address)),
        }
    }

    fn arp_of_services(&self, payload: &[u8]) -> Verdict {
        let repr = ArpPacket::new_checked(payload).and_then(|packet| ArpRepr::parse(&packet));
        match repr {
            Ok(ArpRepr::EthernetIpv4 {
                operation: ArpOperation::Request,
                source_hardware_addr,
                source_protocol_addr,
                target_protocol_addr,
                ..
            }) => {
                let requester = (MacAddr(source_hardware_addr.0), source_protocol_addr);
                let pair = Pair { from: (ROUTER_OF_SERVICES, target_protocol_addr), to: requester };
                Ok(vec![(self.services.0, frame::arp_reply(pair))])
            }
            Ok(_) => Ok(Vec::new()),
            Err(_) => Err(DropReason::Malformed("ARP packet")),
        }
    }

    fn ndp_of_services(&self, packet: &Ipv6Packet<&[u8]>) -> Option<Outgoing> {
        let message = Icmpv6Packet::new_checked(packet.payload()).ok()?;
        match message.msg_type().is_ndisc().then(|| NdiscRepr::parse(&message).ok()).flatten()? {
            NdiscRepr::NeighborSolicit { target_addr, .. } if !packet.src_addr().is_unspecified() => {
                let requester = (self.services.1, packet.src_addr());
                let pair = Pair { from: (ROUTER_OF_SERVICES, target_addr), to: requester };
                Some((self.services.0, frame::neighbour_advertisement(pair, target_addr, true)))
            }
            _ => None,
        }
    }
}

/// The MAC behind which the services find every VNIC.
const ROUTER_OF_SERVICES: MacAddr = MacAddr([0x00, 0x00, 0x17, 0xff, 0xff, 0xfe]);
