//! Where the headers of a packet end: a capture without payload has nothing behind them.

/// ETH_P_… of the protocols that are known.
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const ARP: u16 = 0x0806;

/// Numbers of protocols in IP.
const ICMP: u8 = 1;
const IP_IN_IP: u8 = 4;
const TCP: u8 = 6;
const UDP: u8 = 17;
const IPV6_IN_IP: u8 = 41;
const ICMPV6: u8 = 58;
const SCTP: u8 = 132;

/// An ARP packet of Ethernet and IPv4.
const ARP_LENGTH: usize = 28;
/// What an ICMP error repeats of the transport header: both ports.
const REPEATED: usize = 8;
/// The most headers within each other: extensions, tunnels, ICMP errors.
const DEPTH_MAX: u8 = 8;

/// The bytes of headers at the start of a packet of this protocol; at most its length.
pub(super) fn length(protocol: u16, packet: &[u8]) -> usize {
    let length = match protocol {
        IPV4 | IPV6 => ip(packet, DEPTH_MAX),
        ARP => ARP_LENGTH,
        _ => 0,
    };
    length.min(packet.len())
}

fn ip(packet: &[u8], depth: u8) -> usize {
    let byte = |at: usize| packet.get(at).copied().unwrap_or(0);
    let (header, next) = match byte(0) >> 4 {
        4 => {
            let is_later_fragment = byte(6) & 0x1f != 0 || byte(7) != 0;
            (usize::from(byte(0) & 0x0f).max(5) * 4, if is_later_fragment { None } else { Some(byte(9)) })
        }
        6 => ipv6_header(packet),
        _ => return 0,
    };
    let rest = packet.get(header..).unwrap_or_default();
    header + next.map_or(0, |next| transport(next, rest, depth))
}

/// The length with extensions, and what follows; nothing follows in a later fragment.
fn ipv6_header(packet: &[u8]) -> (usize, Option<u8>) {
    let byte = |at: usize| packet.get(at).copied().unwrap_or(0);
    let (mut at, mut next) = (40, byte(6));
    for _ in 0..DEPTH_MAX {
        match next {
            // Hop-by-hop options, routing and destination options.
            0 | 43 | 60 => (at, next) = (at + 8 * (usize::from(byte(at + 1)) + 1), byte(at)),
            44 if byte(at + 2) != 0 || byte(at + 3) & 0xf8 != 0 => return (at + 8, None),
            44 => (at, next) = (at + 8, byte(at)),
            _ => return (at, Some(next)),
        }
    }
    (at, None)
}

fn transport(protocol: u8, rest: &[u8], depth: u8) -> usize {
    let byte = |at: usize| rest.get(at).copied().unwrap_or(0);
    match protocol {
        TCP => (usize::from(byte(12) >> 4) * 4).clamp(20, 60),
        UDP => 8,
        SCTP => 12,
        ICMP => match byte(0) {
            3 | 5 | 11 | 12 => 8 + repeated(rest, depth),
            _ => 8,
        },
        ICMPV6 => match byte(0) {
            1..=4 => 8 + repeated(rest, depth),
            // Neighbour discovery: addresses and options of the link.
            133..=137 => rest.len().min(64),
            _ => 8,
        },
        IP_IN_IP | IPV6_IN_IP if depth > 0 => ip(rest, depth - 1),
        _ => 0,
    }
}

/// The headers of the packet that an ICMP error is about.
fn repeated(error: &[u8], depth: u8) -> usize {
    let Some(packet) = error.get(8..).filter(|_| depth > 0) else { return 0 };
    let header = match packet.first().map_or(0, |byte| byte >> 4) {
        4 => packet.first().map_or(0, |byte| usize::from(byte & 0x0f).max(5) * 4),
        6 => ipv6_header(packet).0,
        _ => return 0,
    };
    header + REPEATED
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet with 100 bytes of payload.
    fn packet(headers: &[u8]) -> Vec<u8> {
        [headers, &[b'p'; 100]].concat()
    }

    fn ipv4(protocol: u8, fragment: u8) -> Vec<u8> {
        let mut header = vec![0; 20];
        (header[0], header[7], header[9]) = (0x45, fragment, protocol);
        header
    }

    fn ipv6(next: u8) -> Vec<u8> {
        let mut header = vec![0; 40];
        (header[0], header[6]) = (0x60, next);
        header
    }

    fn tcp(words: u8) -> Vec<u8> {
        let mut header = vec![0; usize::from(words) * 4];
        header[12] = words << 4;
        header
    }

    #[test]
    fn length_ends_before_the_payload() {
        let error = |inner: &[u8]| [&ipv4(ICMP, 0), &[3_u8, 0, 0, 0, 0, 0, 0, 0][..], inner, &[1; 8]].concat();
        for (protocol, headers) in [
            (IPV4, [ipv4(TCP, 0), tcp(5)].concat()),
            (IPV4, [ipv4(TCP, 0), tcp(15)].concat()),
            (IPV4, [ipv4(UDP, 0), vec![0; 8]].concat()),
            (IPV4, [ipv4(ICMP, 0), vec![8; 8]].concat()),
            (IPV4, error(&ipv4(TCP, 0))),
            (IPV4, ipv4(UDP, 1)),
            // Of an unknown protocol, the IP header alone.
            (IPV4, ipv4(50, 0)),
            (IPV4, [ipv4(IP_IN_IP, 0), ipv4(TCP, 0), tcp(5)].concat()),
            (IPV6, [ipv6(TCP), tcp(8)].concat()),
            (IPV6, [ipv6(0), vec![UDP, 1], vec![0; 14], vec![0; 8]].concat()),
            (IPV6, [ipv6(44), vec![TCP, 0, 0, 1, 0, 0, 0, 0], tcp(5)].concat()),
            (IPV6, [ipv6(44), vec![TCP, 0, 1, 0, 0, 0, 0, 0]].concat()),
            (IPV6, [ipv6(ICMPV6), vec![128, 0, 0, 0, 0, 1, 0, 1]].concat()),
            (ARP, vec![0; 28]),
            (0x88cc, Vec::new()),
        ] {
            assert_eq!(length(protocol, &packet(&headers)), headers.len(), "{protocol:x} {headers:?}");
            for cut in 0..headers.len() {
                assert!(length(protocol, &headers[..cut]) <= cut);
            }
        }
    }

    #[test]
    fn hostile_headers_end() {
        // Extensions without end, and tunnels within tunnels.
        let extensions = [ipv6(0), vec![0; 4000]].concat();
        assert!(length(IPV6, &extensions) <= 40 + 8 * usize::from(DEPTH_MAX));
        let tunnels = ipv4(IP_IN_IP, 0).repeat(200);
        assert!(length(IPV4, &tunnels) <= 20 * (usize::from(DEPTH_MAX) + 1));
    }
}
