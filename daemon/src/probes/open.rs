//! Sends one packet of a flow in the other direction: stateful rules on the path then take the flow for one that this host
//! began.

use std::io;
use std::net::{IpAddr, SocketAddr};

use nettest::probe::{Flow, Transport};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::packet::checksum;

const TCP: u8 = 6;
const UDP: u8 = 17;
const SYN: u8 = 0x02;

/// Sends it. The answer, a reset in most cases, is the kernel's business.
pub(super) fn open(flow: &Flow) -> io::Result<()> {
    let (from, to) = (SocketAddr::new(flow.target, flow.port), SocketAddr::new(flow.source, flow.source_port));
    let domain = if flow.target.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = match flow.protocol {
        // The port may be a server's: a raw packet needs no port.
        Transport::Tcp => Socket::new(domain, Type::RAW, Some(Protocol::TCP))?,
        Transport::Udp => Socket::new(domain, Type::RAW, Some(Protocol::UDP))?,
        Transport::Icmp => return Err(io::ErrorKind::Unsupported.into()),
    };
    socket.bind(&SockAddr::from(SocketAddr::new(flow.target, 0)))?;
    let mut to_host = to;
    to_host.set_port(0);
    let message = match flow.protocol {
        Transport::Udp => datagram(from, to),
        _ => syn(from, to),
    };
    socket.send_to(&message, &SockAddr::from(to_host)).map(drop)
}

/// A TCP segment that opens a connection, without options.
fn syn(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let mut segment = Vec::with_capacity(20);
    segment.extend(from.port().to_be_bytes());
    segment.extend(to.port().to_be_bytes());
    // Sequence and acknowledgement numbers, header length, flags, window, checksum, urgent pointer.
    segment.extend([0x6e, 0x74, 0x65, 0x73, 0, 0, 0, 0, 0x50, SYN, 0xff, 0xff, 0, 0, 0, 0]);
    let sum = checksum(&[&pseudo_header(from.ip(), to.ip(), TCP, &segment)[..], &segment].concat());
    segment.splice(16..18, sum.to_be_bytes());
    segment
}

/// A UDP datagram without content.
fn datagram(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let mut datagram = Vec::with_capacity(8);
    datagram.extend(from.port().to_be_bytes());
    datagram.extend(to.port().to_be_bytes());
    // Its length and checksum.
    datagram.extend([0, 8, 0, 0]);
    let sum = checksum(&[&pseudo_header(from.ip(), to.ip(), UDP, &datagram)[..], &datagram].concat());
    // Zero would mean that there is none, which IPv6 does not allow.
    let sum = if sum == 0 { u16::MAX } else { sum };
    datagram.splice(6..8, sum.to_be_bytes());
    datagram
}

fn pseudo_header(from: IpAddr, to: IpAddr, protocol: u8, segment: &[u8]) -> Vec<u8> {
    let length = u16::try_from(segment.len()).unwrap_or(0).to_be_bytes();
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => [&from.octets()[..], &to.octets(), &[0, protocol], &length].concat(),
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            [&from.octets()[..], &to.octets(), &[0, 0], &length, &[0, 0, 0, protocol]].concat()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_valid_in_both_families() {
        for (from, to) in [("10.0.0.2:53", "10.0.1.3:20000"), ("[2001:db8::2]:53", "[2001:db8:1::3]:20000")] {
            let (from, to): (SocketAddr, SocketAddr) = (from.parse().unwrap(), to.parse().unwrap());
            // The sum of a whole message is zero. Of the ports, one makes the datagram's own sum zero.
            for port in 0..=u16::MAX {
                let to = SocketAddr::new(to.ip(), port);
                let message = datagram(from, to);
                let covered = [&pseudo_header(from.ip(), to.ip(), UDP, &message)[..], &message].concat();
                assert_eq!(checksum(&covered), 0, "{from} {to}");
                assert_ne!(message[6..8], [0, 0], "{from} {to}");
            }
            let message = syn(from, to);
            assert_eq!(checksum(&[&pseudo_header(from.ip(), to.ip(), TCP, &message)[..], &message].concat()), 0);
        }
    }
}
