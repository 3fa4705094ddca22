//! The program that the kernel runs on each packet before it queues it (classic BPF). It is a list of rules, and passes a packet that
//! one of them fits. Offsets are from the IP header on.

use std::net::IpAddr;

use libc::sock_filter;
use libc::{BPF_ABS, BPF_ALU, BPF_AND, BPF_B, BPF_H, BPF_IMM, BPF_IND, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_LDX};
use libc::{BPF_MSH, BPF_RET, BPF_RSH, BPF_W};
use libc::{ETH_P_ARP, ETH_P_IP, ETH_P_IPV6};

/// The bytes of an ICMP error before the packet that it is about.
const ICMP_HEADER: u32 = 8;
const WHOLE_PACKET: u32 = u32::MAX;
/// An IPv6 header without extensions.
const IPV6_HEADER: u32 = 40;
/// Where a program reads the protocol of a packet: SKF_AD_OFF + SKF_AD_PROTOCOL.
const LINK_PROTOCOL: u32 = 0xffff_f000;
/// The bits of an IPv4 header's fragment field that are zero in a first fragment.
const FRAGMENT_OFFSET: u32 = 0x1fff;

/// Which packets a [`CaptureTap`](super::CaptureTap) delivers; all by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketFilter {
    /// Only packets of this protocol.
    pub protocol: Option<PacketProtocol>,
    /// From or to this address.
    pub host: Option<IpAddr>,
    /// From or to this port of TCP or UDP. Later fragments have no port.
    pub port: Option<u16>,
}

/// A protocol that a filter knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketProtocol {
    /// TCP of either family.
    Tcp,
    /// UDP of either family.
    Udp,
    /// ICMP, and ICMPv6 with neighbour discovery.
    Icmp,
    /// ARP, which has no addresses of IP.
    Arp,
}

/// Loads a number from a packet, masks and compares it.
#[derive(Clone, Copy, Debug)]
struct Test {
    load: u32,
    offset: u32,
    mask: u32,
    value: u32,
}

impl Test {
    const fn new(load: u32, offset: u32, value: u32) -> Self {
        Self { load, offset, mask: u32::MAX, value }
    }
}

/// The program for the packets between two addresses of one family and the ICMP errors about those of the first address.
pub(super) fn between(source: IpAddr, target: IpAddr) -> Vec<sock_filter> {
    // The version, the offsets of addresses and protocol, ICMP's number, and the length of the header into register X.
    let (version, from, to, protocol, icmp, header) = match source {
        IpAddr::V4(_) => (4, 12, 16, 9, libc::IPPROTO_ICMP, ipv4_header_into_x()),
        IpAddr::V6(_) => (6, 8, 24, 6, libc::IPPROTO_ICMPV6, statement(BPF_LDX | BPF_IMM, IPV6_HEADER)),
    };
    let pair = |mode, start, one, other| [is_at(mode, start + from, one), is_at(mode, start + to, other)].concat();
    let is_icmp = Test::new(BPF_LD | BPF_B | BPF_ABS, protocol, icmp.unsigned_abs());
    let rules = [
        pair(BPF_ABS, 0, source, target),
        pair(BPF_ABS, 0, target, source),
        [vec![is_icmp], pair(BPF_IND, ICMP_HEADER, source, target)].concat(),
    ];
    let mut program = vec![
        statement(BPF_LD | BPF_B | BPF_ABS, 0),
        statement(BPF_ALU | BPF_RSH | BPF_K, 4),
        if_equal(version, 1, 0),
        statement(BPF_RET | BPF_K, 0),
        header,
    ];
    program.extend(any_of(&rules));
    program
}

/// The program for a filter.
pub(super) fn matching(filter: PacketFilter) -> Vec<sock_filter> {
    if filter == PacketFilter::default() {
        return vec![statement(BPF_RET | BPF_K, WHOLE_PACKET)];
    }
    let rules = [ip_rules(filter, true), ip_rules(filter, false), arp_rules(filter)].concat();
    let mut program = vec![ipv4_header_into_x()];
    program.extend(any_of(&rules));
    program
}

/// One rule for each place of the address and of the port.
fn ip_rules(PacketFilter { protocol, host, port }: PacketFilter, is_v4: bool) -> Vec<Vec<Test>> {
    let (ethertype, protocol_at, addresses, icmp) = if is_v4 {
        (ETH_P_IP, 9, [12, 16], libc::IPPROTO_ICMP)
    } else {
        (ETH_P_IPV6, 6, [8, 24], libc::IPPROTO_ICMPV6)
    };
    let numbers = match (protocol, port) {
        (Some(PacketProtocol::Arp), _) | (Some(PacketProtocol::Icmp), Some(_)) => return Vec::new(),
        (Some(PacketProtocol::Tcp), _) => vec![Some(libc::IPPROTO_TCP)],
        (Some(PacketProtocol::Udp), _) => vec![Some(libc::IPPROTO_UDP)],
        (Some(PacketProtocol::Icmp), None) => vec![Some(icmp)],
        (None, Some(_)) => vec![Some(libc::IPPROTO_TCP), Some(libc::IPPROTO_UDP)],
        (None, None) => vec![None],
    };
    if host.is_some_and(|host| host.is_ipv4() != is_v4) {
        return Vec::new();
    }
    let hosts = places(host.map(|host| addresses.map(|at| is_at(BPF_ABS, at, host))));
    let port_at = |offset, number| {
        let load = BPF_LD | BPF_H;
        let first = Test { mask: FRAGMENT_OFFSET, ..Test::new(load | BPF_ABS, 6, 0) };
        match is_v4 {
            true => vec![first, Test::new(load | BPF_IND, offset, u32::from(number))],
            false => vec![Test::new(load | BPF_ABS, IPV6_HEADER + offset, u32::from(number))],
        }
    };
    let ports = places(port.map(|number| [0, 2].map(|offset| port_at(offset, number))));
    let mut rules = Vec::new();
    for number in numbers {
        for host in &hosts {
            for port in &ports {
                let protocol =
                    number.map(|number| Test::new(BPF_LD | BPF_B | BPF_ABS, protocol_at, number.unsigned_abs()));
                let rule = [is_link_protocol(ethertype)].into_iter().chain(protocol).chain(host.clone());
                rules.push(rule.chain(port.clone()).collect());
            }
        }
    }
    rules
}

fn arp_rules(PacketFilter { protocol, host, port }: PacketFilter) -> Vec<Vec<Test>> {
    if port.is_some() || protocol.is_some_and(|it| it != PacketProtocol::Arp) || host.is_some_and(|it| it.is_ipv6()) {
        return Vec::new();
    }
    // The addresses of sender and target.
    let hosts = places(host.map(|host| [14, 24].map(|at| is_at(BPF_ABS, at, host))));
    hosts.into_iter().map(|host| [vec![is_link_protocol(ETH_P_ARP)], host].concat()).collect()
}

/// The alternatives; without any, one that needs nothing.
fn places(found: Option<[Vec<Test>; 2]>) -> Vec<Vec<Test>> {
    found.map_or_else(|| vec![Vec::new()], Vec::from)
}

fn is_link_protocol(ethertype: libc::c_int) -> Test {
    Test::new(BPF_LD | BPF_H | BPF_ABS, LINK_PROTOCOL, ethertype.unsigned_abs())
}

/// Passes what one of the rules fits.
fn any_of(rules: &[Vec<Test>]) -> Vec<sock_filter> {
    let mut program = Vec::new();
    for rule in rules {
        let sizes: Vec<usize> = rule.iter().map(|test| if test.mask == u32::MAX { 2 } else { 3 }).collect();
        for (number, test) in rule.iter().enumerate() {
            // Over the other tests of the rule, and its end.
            let to_next_rule = sizes.iter().skip(number + 1).sum::<usize>() + 1;
            program.push(statement(test.load, test.offset));
            if test.mask != u32::MAX {
                program.push(statement(BPF_ALU | BPF_AND | BPF_K, test.mask));
            }
            program.push(if_equal(test.value, 0, u8::try_from(to_next_rule).unwrap_or(u8::MAX)));
        }
        program.push(statement(BPF_RET | BPF_K, WHOLE_PACKET));
    }
    program.push(statement(BPF_RET | BPF_K, 0));
    program
}

/// Tests that an address is at an offset, word by word.
fn is_at(mode: u32, offset: u32, address: IpAddr) -> Vec<Test> {
    let words = match address {
        IpAddr::V4(address) => vec![address.to_bits()],
        IpAddr::V6(address) => address.octets().as_chunks().0.iter().map(|word| u32::from_be_bytes(*word)).collect(),
    };
    words
        .into_iter()
        .zip((offset..).step_by(4))
        .map(|(value, at)| Test::new(BPF_LD | BPF_W | mode, at, value))
        .collect()
}

fn ipv4_header_into_x() -> sock_filter {
    statement(BPF_LDX | BPF_B | BPF_MSH, 0)
}

fn if_equal(value: u32, then: u8, otherwise: u8) -> sock_filter {
    sock_filter { jt: then, jf: otherwise, ..statement(BPF_JMP | BPF_JEQ | BPF_K, value) }
}

fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter { code: u16::try_from(code).unwrap_or(u16::MAX), jt: 0, jf: 0, k }
}
