//! What the VCN does not let pass between VNICs: security lists and groups, route tables, the path MTU. Without a policy
//! everything passes.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use ipnetwork::IpNetwork;
use smoltcp::wire::{EthernetFrame, IpProtocol, Ipv4Packet, Ipv6Packet, TcpPacket, UdpPacket};

use super::{DropReason, VnicPort, frame};

/// What does not pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Packets that no rule admits.
    pub denied: Vec<DeniedTraffic>,
    /// The address of a VNIC whose table of connections is full: flows that passed under the last policy continue, new ones do not.
    pub full_vnic: Option<IpAddr>,
    /// Networks that a subnet's route table lacks: the subnet's name, and the network.
    pub unrouted: Vec<(String, IpNetwork)>,
    /// The path MTU between subnets.
    pub path_mtu: Option<PathMtu>,
    /// What a network without fault does to packets, too.
    pub noise: Option<Noise>,
}

/// Delay and loss that are not a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noise {
    /// The longest delay of a frame.
    pub delay: Duration,
    /// One of so many packets between VNICs is lost.
    pub lost_of: u32,
}

/// Packets that the rules of a subnet or of a VNIC do not admit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeniedTraffic {
    /// Where the rules are.
    pub at: DeniedAt,
    /// The packets that they lack.
    pub traffic: Traffic,
    /// Sources that are admitted anyway, as a group's rule that names another group.
    pub except: BTreeSet<IpAddr>,
}

/// A part of all packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Every protocol and port.
    All,
    /// This port of TCP.
    TcpPort(u16),
    /// Every port of UDP.
    Udp,
}

/// The side whose rules deny a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeniedAt {
    /// The security list of the subnet of this name, ingress.
    SubnetIngress(String),
    /// The groups of the VNIC with this address, ingress.
    VnicIngress(IpAddr),
    /// The security list of the subnet of this name, egress, whose rules are stateless: answers from the port are lost, too.
    SubnetAnswers(String),
}

/// The largest packet between subnets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathMtu {
    /// In bytes, with the IP header.
    pub bytes: u16,
    /// Whether the router says so by ICMP.
    pub reported: bool,
}

/// The policy, and the flows that passed: a rule is stateful and admits their answers.
#[derive(Debug, Default)]
pub(super) struct Rules {
    policy: Policy,
    flows: BTreeSet<FlowKey>,
    packets: u32,
}

/// Source, target, protocol and both ports.
type FlowKey = (IpAddr, IpAddr, u8, u16, u16);

/// What happens to a packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Pass,
    Drop(DropReason),
    /// The router answers with this frame.
    TooBig(Vec<u8>),
}

impl Rules {
    pub(super) fn set(&mut self, policy: Policy) {
        let flows = if policy.full_vnic.is_some() { std::mem::take(&mut self.flows) } else { BTreeSet::new() };
        *self = Self { policy, flows, ..Self::default() };
    }

    /// The longest delay of a frame, if the policy has noise.
    pub(super) fn longest_delay(&self) -> Option<Duration> {
        self.policy.noise.map(|noise| noise.delay)
    }

    /// Decides about a packet from one VNIC to another, and remembers its flow if it passes.
    pub(super) fn decide(&mut self, from: &VnicPort, to: &VnicPort, bytes: &[u8]) -> Decision {
        if self.policy == Policy::default() {
            return Decision::Pass;
        }
        let Some((key, length)) = read(bytes) else { return Decision::Pass };
        let (source, target, ..) = key;
        self.packets = self.packets.wrapping_add(1);
        if self.policy.noise.is_some_and(|noise| self.packets.is_multiple_of(noise.lost_of)) {
            return Decision::Drop(DropReason::Chance(target));
        }
        let other_subnet = from.subnet.id != to.subnet.id;
        let unrouted =
            |(subnet, network): &(String, IpNetwork)| *subnet == from.subnet.name && network.contains(target);
        if other_subnet && self.policy.unrouted.iter().any(unrouted) {
            return Decision::Drop(DropReason::NoRoute(target));
        }
        if let Some(mtu) = self.policy.path_mtu.filter(|mtu| other_subnet && length > usize::from(mtu.bytes)) {
            let error = mtu.reported.then(|| frame::too_big(from, bytes, mtu.bytes)).flatten();
            return error.map_or(Decision::Drop(DropReason::TooLong(length)), Decision::TooBig);
        }
        let (_, _, protocol, source_port, target_port) = key;
        let answers = self.flows.contains(&(target, source, protocol, target_port, source_port));
        let denies = |denied: &DeniedTraffic| {
            let (here, port) = match &denied.at {
                DeniedAt::SubnetIngress(subnet) => (*subnet == to.subnet.name && !answers, target_port),
                DeniedAt::VnicIngress(address) => (to.owns(*address) && !answers, target_port),
                DeniedAt::SubnetAnswers(subnet) => (*subnet == from.subnet.name, source_port),
            };
            here && denied.traffic.contains(protocol.into(), port) && !denied.except.contains(&source)
        };
        if self.policy.denied.iter().any(denies) {
            return Decision::Drop(DropReason::SecurityRule(target));
        }
        let is_full = self.policy.full_vnic.is_some_and(|vnic| from.owns(vnic) || to.owns(vnic));
        if is_full && !answers && !self.flows.contains(&key) {
            return Decision::Drop(DropReason::TooManyConnections(target));
        }
        self.flows.insert(key);
        Decision::Pass
    }
}

impl Traffic {
    fn contains(self, protocol: IpProtocol, port: u16) -> bool {
        match self {
            Self::All => true,
            Self::TcpPort(denied) => protocol == IpProtocol::Tcp && denied == port,
            Self::Udp => protocol == IpProtocol::Udp,
        }
    }
}

/// The flow of a packet, and its length.
fn read(bytes: &[u8]) -> Option<(FlowKey, usize)> {
    let frame = EthernetFrame::new_checked(bytes).ok()?;
    let (source, target, protocol, payload, length): (IpAddr, IpAddr, _, _, _) =
        match Ipv4Packet::new_checked(frame.payload()).ok().filter(|packet| packet.version() == 4) {
            Some(packet) => {
                let length = usize::from(packet.total_len());
                (packet.src_addr().into(), packet.dst_addr().into(), packet.next_header(), packet.payload(), length)
            }
            None => {
                let packet = Ipv6Packet::new_checked(frame.payload()).ok()?;
                let length = packet.total_len();
                (packet.src_addr().into(), packet.dst_addr().into(), packet.next_header(), packet.payload(), length)
            }
        };
    let (from, to) = match protocol {
        IpProtocol::Tcp => TcpPacket::new_checked(payload).map_or((0, 0), |tcp| (tcp.src_port(), tcp.dst_port())),
        IpProtocol::Udp => UdpPacket::new_checked(payload).map_or((0, 0), |udp| (udp.src_port(), udp.dst_port())),
        _ => (0, 0),
    };
    Some(((source, target, protocol.into(), from, to), length))
}
