//! IPv4 packets from a VNIC.

use std::net::IpAddr;
use std::time::Duration;

use smoltcp::wire::{EthernetFrame, Icmpv4Message, Icmpv4Packet, IpProtocol, Ipv4Packet};

use super::{BOOT_DISK_V4, DropReason, Fabric, SERVICES_V4, Sender, Verdict, VnicPort, frame};

impl Fabric {
    pub(super) fn ipv4(&mut self, now: Duration, from: Sender<'_>, bytes: &[u8]) -> Verdict {
        let Sender { port, vnic } = from;
        let frame = EthernetFrame::new_unchecked(bytes);
        let packet = Ipv4Packet::new_checked(frame.payload()).map_err(|_| DropReason::Malformed("IPv4 packet"))?;
        if packet.version() != 4 || !packet.verify_checksum() {
            return Err(DropReason::Malformed("IPv4 header"));
        }
        let (source, destination) = (packet.src_addr(), packet.dst_addr());
        if source.is_unspecified() && destination.is_broadcast() {
            return Ok(Vec::new());
        }
        if !vnic.owns(IpAddr::V4(source)) {
            return Err(DropReason::ForeignSource(source.into()));
        }
        let subnet_broadcast = vnic.subnet.ipv4().is_some_and(|block| block.broadcast() == destination);
        if destination.is_multicast() || destination.is_broadcast() || subnet_broadcast {
            return Ok(Vec::new());
        }
        if [SERVICES_V4, BOOT_DISK_V4].contains(&destination) {
            return self.to_services(vnic, bytes);
        }
        if destination.is_link_local() {
            return Err(DropReason::NoSuchService(destination.into()));
        }
        if vnic.subnet.router_v4() == Some(destination) {
            return echo(&packet, bytes, vnic).map(|reply| vec![(port, reply)]);
        }
        self.deliver(now, from, destination.into(), bytes)
    }
}

/// The router's answer to an echo request: the same packet, turned around.
fn echo(request: &Ipv4Packet<&[u8]>, bytes: &[u8], vnic: &VnicPort) -> Result<Vec<u8>, DropReason> {
    let whole = !request.more_frags() && request.frag_offset() == 0;
    let is_echo = Icmpv4Packet::new_checked(request.payload())
        .is_ok_and(|message| message.msg_type() == Icmpv4Message::EchoRequest && message.verify_checksum());
    if !(whole && is_echo && request.next_header() == IpProtocol::Icmp) {
        return Err(DropReason::RouterOnlyEchoes);
    }
    let mut reply = bytes.to_vec();
    frame::readdress(&mut reply, vnic.subnet.router_mac, vnic.mac);
    let mut outer = EthernetFrame::new_unchecked(reply.as_mut_slice());
    let mut packet = Ipv4Packet::new_unchecked(outer.payload_mut());
    packet.set_src_addr(request.dst_addr());
    packet.set_dst_addr(request.src_addr());
    packet.set_hop_limit(64);
    packet.fill_checksum();
    let mut message = Icmpv4Packet::new_unchecked(packet.payload_mut());
    message.set_msg_type(Icmpv4Message::EchoReply);
    message.fill_checksum();
    Ok(reply)
}
