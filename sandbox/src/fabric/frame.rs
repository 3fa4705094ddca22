//! The frames that the fabric sends itself, and its two changes to frames that pass.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::time::Duration;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr, Icmpv4Packet,
    Icmpv6Packet, Icmpv6Repr, IpProtocol, Ipv4Packet, Ipv4Repr, Ipv6Packet, Ipv6Repr, NdiscNeighborFlags, NdiscRepr,
    NdiscRouterFlags,
};
use vcn::MacAddr;

use super::VnicPort;
use super::drops::DropReason;

/// The lifetime of the default route that router advertisements give.
const ROUTER_LIFETIME: Duration = Duration::from_secs(1800);

const BROADCAST: MacAddr = MacAddr([0xff; 6]);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Sender and receiver, on both layers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair<A> {
    pub(super) from: (MacAddr, A),
    pub(super) to: (MacAddr, A),
}

/// "Who has `address`? Tell `router`."
pub(super) fn arp_request(mac: MacAddr, router: Ipv4Addr, address: Ipv4Addr) -> Vec<u8> {
    arp(ArpOperation::Request, Pair { from: (mac, router), to: (MacAddr([0; 6]), address) }, BROADCAST)
}

/// The reply "`pair.from` has it", sent to `pair.to`.
pub(super) fn arp_reply(pair: Pair<Ipv4Addr>) -> Vec<u8> {
    arp(ArpOperation::Reply, pair, pair.to.0)
}

/// The IPv6 question, sent to the address's solicited-node group (RFC 4861).
pub(super) fn neighbour_solicitation(mac: MacAddr, router: Ipv6Addr, address: Ipv6Addr) -> Vec<u8> {
    let [.., a, b, c] = address.octets();
    let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from_be_bytes([b, c]));
    let repr = NdiscRepr::NeighborSolicit { target_addr: address, lladdr: Some(ethernet(mac).into()) };
    icmpv6(Pair { from: (mac, router), to: (multicast(group), group) }, Icmpv6Repr::Ndisc(repr))
}

/// The IPv6 answer: `pair.from` has `target`.
pub(super) fn neighbour_advertisement(pair: Pair<Ipv6Addr>, target: Ipv6Addr, router: bool) -> Vec<u8> {
    let mut flags = NdiscNeighborFlags::SOLICITED | NdiscNeighborFlags::OVERRIDE;
    flags.set(NdiscNeighborFlags::ROUTER, router);
    let repr = NdiscRepr::NeighborAdvert { flags, target_addr: target, lladdr: Some(ethernet(pair.from.0).into()) };
    icmpv6(pair, Icmpv6Repr::Ndisc(repr))
}

/// A router advertisement to all nodes: addresses are managed (DHCPv6), the router is a default router. It announces no
/// prefix: an OCI instance has a /128 and finds its neighbours through the router.
pub(super) fn router_advertisement(mac: MacAddr, router: Ipv6Addr) -> Vec<u8> {
    let repr = NdiscRepr::RouterAdvert {
        hop_limit: 64,
        flags: NdiscRouterFlags::MANAGED,
        router_lifetime: ROUTER_LIFETIME,
        reachable_time: Duration::from_millis(0),
        retrans_time: Duration::from_millis(0),
        lladdr: Some(ethernet(mac).into()),
        mtu: None,
        prefix_info: None,
    };
    icmpv6(Pair { from: (mac, router), to: (multicast(ALL_NODES), ALL_NODES) }, Icmpv6Repr::Ndisc(repr))
}

/// An ICMPv6 message with a hop limit of 255, which NDP insists on.
pub(super) fn icmpv6(pair: Pair<Ipv6Addr>, message: Icmpv6Repr<'_>) -> Vec<u8> {
    let header = Ipv6Repr {
        src_addr: pair.from.1,
        dst_addr: pair.to.1,
        next_header: IpProtocol::Icmpv6,
        payload_len: message.buffer_len(),
        hop_limit: 255,
    };
    let mut bytes = vec![0; EthernetFrame::<&[u8]>::header_len() + header.buffer_len() + message.buffer_len()];
    let mut frame = EthernetFrame::new_unchecked(bytes.as_mut_slice());
    header_of(EthernetProtocol::Ipv6, pair.from.0, pair.to.0).emit(&mut frame);
    let mut packet = Ipv6Packet::new_unchecked(frame.payload_mut());
    header.emit(&mut packet);
    message.emit(
        &pair.from.1,
        &pair.to.1,
        &mut Icmpv6Packet::new_unchecked(packet.payload_mut()),
        &ChecksumCapabilities::default(),
    );
    bytes
}

/// ICMP "fragmentation needed" or "packet too big" from the router of a VNIC, about a packet that the VNIC sent.
pub(super) fn too_big(vnic: &VnicPort, about: &[u8], mtu: u16) -> Option<Vec<u8>> {
    let cause = EthernetFrame::new_checked(about).ok()?;
    if cause.ethertype() == EthernetProtocol::Ipv6 {
        let packet = Ipv6Packet::new_checked(cause.payload()).ok()?;
        let pair = Pair { from: (vnic.subnet.router_mac, vnic.subnet.router_v6()?), to: (vnic.mac, packet.src_addr()) };
        // With its own headers and those of the packet no more than 1280 bytes (RFC 4443).
        let (header, data) = (Ipv6Repr::parse(&packet).ok()?, packet.payload().get(..1280 - 88)?);
        return Some(icmpv6(pair, Icmpv6Repr::PktTooBig { mtu: mtu.into(), header, data }));
    }
    let router = vnic.subnet.router_v4()?;
    let packet = Ipv4Packet::new_checked(cause.payload()).ok()?;
    // Its header and the first eight bytes after it (RFC 792).
    let quoted = cause.payload().get(..usize::from(packet.header_len()) + 8)?;
    let mut message = vec![3, 4, 0, 0, 0, 0];
    message.extend(mtu.to_be_bytes());
    message.extend(quoted);
    let header = Ipv4Repr {
        src_addr: router,
        dst_addr: packet.src_addr(),
        next_header: IpProtocol::Icmp,
        payload_len: message.len(),
        hop_limit: 64,
    };
    let mut bytes = vec![0; EthernetFrame::<&[u8]>::header_len() + header.buffer_len() + message.len()];
    let mut frame = EthernetFrame::new_unchecked(bytes.as_mut_slice());
    header_of(EthernetProtocol::Ipv4, vnic.subnet.router_mac, vnic.mac).emit(&mut frame);
    let mut outer = Ipv4Packet::new_unchecked(frame.payload_mut());
    header.emit(&mut outer, &ChecksumCapabilities::default());
    outer.payload_mut().copy_from_slice(&message);
    Icmpv4Packet::new_unchecked(outer.payload_mut()).fill_checksum();
    Some(bytes)
}

/// Replaces the Ethernet addresses of a frame.
pub(super) fn readdress(frame: &mut [u8], from: MacAddr, to: MacAddr) {
    let mut frame = EthernetFrame::new_unchecked(frame);
    frame.set_src_addr(ethernet(from));
    frame.set_dst_addr(ethernet(to));
}

/// Takes one off the hop limit of the (already checked) IP packet in a frame.
pub(super) fn decrement_hop_limit(frame: &mut [u8], destination: IpAddr) -> Result<(), DropReason> {
    let mut frame = EthernetFrame::new_unchecked(frame);
    let exhausted = || DropReason::HopLimit(destination);
    match destination {
        IpAddr::V4(_) => {
            let mut packet = Ipv4Packet::new_unchecked(frame.payload_mut());
            let left = packet.hop_limit().checked_sub(1).filter(|left| *left > 0).ok_or_else(exhausted)?;
            packet.set_hop_limit(left);
            packet.fill_checksum();
        }
        IpAddr::V6(_) => {
            let mut packet = Ipv6Packet::new_unchecked(frame.payload_mut());
            let left = packet.hop_limit().checked_sub(1).filter(|left| *left > 0).ok_or_else(exhausted)?;
            packet.set_hop_limit(left);
        }
    }
    Ok(())
}

pub(super) const fn header_of(ethertype: EthernetProtocol, from: MacAddr, to: MacAddr) -> EthernetRepr {
    EthernetRepr { src_addr: ethernet(from), dst_addr: ethernet(to), ethertype }
}

const fn ethernet(mac: MacAddr) -> EthernetAddress {
    EthernetAddress(mac.0)
}

/// The Ethernet address of an IPv6 multicast group (RFC 2464).
const fn multicast(group: Ipv6Addr) -> MacAddr {
    let [.., a, b, c, d] = group.octets();
    MacAddr([0x33, 0x33, a, b, c, d])
}

fn arp(operation: ArpOperation, pair: Pair<Ipv4Addr>, to: MacAddr) -> Vec<u8> {
    let repr = ArpRepr::EthernetIpv4 {
        operation,
        source_hardware_addr: ethernet(pair.from.0),
        source_protocol_addr: pair.from.1,
        target_hardware_addr: ethernet(pair.to.0),
        target_protocol_addr: pair.to.1,
    };
    let mut bytes = vec![0; EthernetFrame::<&[u8]>::header_len() + repr.buffer_len()];
    let mut frame = EthernetFrame::new_unchecked(bytes.as_mut_slice());
    header_of(EthernetProtocol::Arp, pair.from.0, to).emit(&mut frame);
    repr.emit(&mut ArpPacket::new_unchecked(frame.payload_mut()));
    bytes
}
