//! The headers of a packet: enough to recognize those of a flow, and ICMP errors about them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nettest::probe::{Failure, Flow, Transport};

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Headers<'a> {
    pub(super) source: IpAddr,
    pub(super) target: IpAddr,
    protocol: u8,
    /// What follows the IP header.
    rest: &'a [u8],
}

/// The direction of a packet of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Forward,
    Backward,
}

impl<'a> Headers<'a> {
    /// Reads an IP packet. Later fragments have no ports and are none of a probe's.
    pub(super) fn read(packet: &'a [u8]) -> Option<Self> {
        match packet.first()? >> 4 {
            4 => {
                let header = packet.get(..20)?;
                let &[first, _, _, _, _, _, fragment, offset, _, protocol, _, _, a, b, c, d, e, f, g, h] = header
                else {
                    return None;
                };
                let is_first = (u16::from(fragment & 0x1f) << 8 | u16::from(offset)) == 0;
                let rest = packet.get(usize::from(first & 0x0f) * 4..).filter(|_| is_first)?;
                let (source, target) = (Ipv4Addr::new(a, b, c, d), Ipv4Addr::new(e, f, g, h));
                Some(Self { source: source.into(), target: target.into(), protocol, rest })
            }
            6 => {
                let address = |from: usize| {
                    let octets: [u8; 16] = packet.get(from..from + 16)?.try_into().ok()?;
                    Some(IpAddr::from(Ipv6Addr::from(octets)))
                };
                let rest = packet.get(40..)?;
                Some(Self { source: address(8)?, target: address(24)?, protocol: *packet.get(6)?, rest })
            }
            _ => None,
        }
    }

    /// Whether it belongs to a flow, and its direction.
    pub(super) fn direction(&self, flow: &Flow) -> Option<Direction> {
        let forward = self.source == flow.source && self.target == flow.target;
        let backward = self.source == flow.target && self.target == flow.source;
        let fits = match (flow.protocol, self.protocol) {
            (Transport::Tcp, TCP) | (Transport::Udp, UDP) => {
                let &[a, b, c, d, ..] = self.rest else { return None };
                let (from, to) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
                let (source, target) = if forward { (from, to) } else { (to, from) };
                is_port(flow.source_port, source) && is_port(flow.port, target)
            }
            (Transport::Icmp, ICMP | ICMPV6) => {
                let &[kind, _, _, _, high, low, ..] = self.rest else { return None };
                let request = if self.protocol == ICMP { 8 } else { 128 };
                let answer = if self.protocol == ICMP { 0 } else { 129 };
                let is_echo = (forward && kind == request) || (backward && kind == answer);
                is_echo && is_port(flow.source_port, u16::from_be_bytes([high, low]))
            }
            _ => false,
        };
        match (fits, forward, backward) {
            (true, true, _) => Some(Direction::Forward),
            (true, _, true) => Some(Direction::Backward),
            _ => None,
        }
    }

    /// What an ICMP error about a packet of the flow means.
    pub(super) fn error_about(&self, flow: &Flow) -> Option<Failure> {
        let &[kind, code, _, _, a, b, c, d, ..] = self.rest else { return None };
        let is_error = match self.protocol {
            ICMP => matches!(kind, 3 | 11 | 12),
            ICMPV6 => kind < 128,
            _ => false,
        };
        let about = Headers::read(self.rest.get(8..)?).filter(|_| is_error)?;
        about.direction(flow).filter(|direction| *direction == Direction::Forward)?;
        let from = self.source;
        Some(match (self.protocol, kind, code) {
            (ICMP, 3, 3) | (ICMPV6, 1, 4) => Failure::Refused,
            (ICMP, 3, 4) => Failure::TooBig { mtu: u16::from_be_bytes([c, d]).into(), from: Some(from) },
            (ICMPV6, 2, _) => Failure::TooBig { mtu: u32::from_be_bytes([a, b, c, d]), from: Some(from) },
            (ICMP, 3, 9 | 10 | 13) | (ICMPV6, 1, 1 | 5 | 6) => Failure::Prohibited(from),
            _ => Failure::Unreachable(from),
        })
    }
}

const fn is_port(expected: u16, found: u16) -> bool {
    expected == 0 || expected == found
}

/// The Internet checksum of RFC 1071; an odd last byte is padded with zero.
pub(super) fn checksum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| match *pair {
        [high, low] => u32::from(u16::from_be_bytes([high, low])),
        [high] => u32::from(high) << 8,
        _ => 0,
    };
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(protocol: Transport) -> Flow {
        let (source, target) = ("10.0.0.2".parse().unwrap(), "10.0.1.3".parse().unwrap());
        Flow { protocol, source, target, source_port: 20_000, port: 443 }
    }

    /// An IPv4 packet without options.
    fn packet(protocol: u8, from: [u8; 4], to: [u8; 4], rest: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0];
        packet.extend(from);
        packet.extend(to);
        packet.extend(rest);
        packet
    }

    const A: [u8; 4] = [10, 0, 0, 2];
    const B: [u8; 4] = [10, 0, 1, 3];
    /// From port 20000 to port 443.
    const PORTS: [u8; 8] = [0x4e, 0x20, 0x01, 0xbb, 0, 0, 0, 0];

    #[test]
    fn packets_of_a_flow_are_recognized_in_both_directions() {
        let tcp = flow(Transport::Tcp);
        let direction = |packet: &[u8]| Headers::read(packet).and_then(|headers| headers.direction(&tcp));
        assert_eq!(direction(&packet(TCP, A, B, &PORTS)), Some(Direction::Forward));
        assert_eq!(direction(&packet(TCP, B, A, &[0x01, 0xbb, 0x4e, 0x20])), Some(Direction::Backward));
        assert_eq!(direction(&packet(TCP, B, A, &PORTS)), None, "the ports are exchanged");
        assert_eq!(direction(&packet(UDP, A, B, &PORTS)), None);
        assert_eq!(direction(&packet(TCP, A, A, &PORTS)), None);
        let mut later = packet(TCP, A, B, &PORTS);
        later[7] = 1;
        assert_eq!(direction(&later), None, "a later fragment has no ports");
        for length in 0..28 {
            let _ = direction(&packet(TCP, A, B, &PORTS)[..length]);
        }
    }

    #[test]
    fn icmp_errors_name_their_meaning_and_sender() {
        let tcp = flow(Transport::Tcp);
        let router: IpAddr = "10.0.0.1".parse().unwrap();
        for (kind, code, failure) in [
            (3, 3, Failure::Refused),
            (3, 10, Failure::Prohibited(router)),
            (3, 13, Failure::Prohibited(router)),
            (3, 1, Failure::Unreachable(router)),
            (3, 4, Failure::TooBig { mtu: 1500, from: Some(router) }),
            (11, 0, Failure::Unreachable(router)),
        ] {
            let error = [&[kind, code, 0, 0, 0, 0, 0x05, 0xdc][..], &packet(TCP, A, B, &PORTS)].concat();
            let error = packet(ICMP, [10, 0, 0, 1], A, &error);
            assert_eq!(Headers::read(&error).unwrap().error_about(&tcp), Some(failure));
        }
        let echo = packet(ICMP, B, A, &[8, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Headers::read(&echo).unwrap().error_about(&tcp), None);
    }
}
