//! Echo requests, of any size; of PathMTU none may be fragmented. Without the capability NET_RAW the kernel's socket for echo
//! requests is used, which net.ipv4.ping_group_range allows.

use std::io::{self, ErrorKind, Read as _};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use nettest::probe::{ProbeKind, SendTask, Tally};
use socket2::{Protocol, SockAddr, Socket, Type};
use vcn::Family;

use super::series::{Answer, Exchange, Pace, failed, send_series};
use super::socket::ProbeRoute;

/// The headers of IP and of an echo request.
const HEADERS_V4: u32 = 28;
const HEADERS_V6: u32 = 48;
/// The payload without a size.
const LEAST: usize = 16;

/// The next identifier where none was requested: each task has its own, because every socket receives all answers.
static NEXT_IDENTIFIER: AtomicU16 = AtomicU16::new(0x6e74);

struct Echo<'a> {
    way: &'a ProbeRoute,
    socket: Socket,
    identifier: u16,
    payload: usize,
    /// Whether packets have an IP header, and the answers of other sockets are received.
    is_raw: bool,
}

pub(super) fn probe(way: &ProbeRoute, task: &SendTask) -> Tally {
    match open(way, task) {
        Ok(mut echo) => send_series(&mut echo, Pace::from(task)),
        Err(error) => failed(&error),
    }
}

fn open<'a>(way: &'a ProbeRoute, task: &SendTask) -> io::Result<Echo<'a>> {
    let (protocol, headers) = match way.family() {
        Family::Ipv4 => (Protocol::ICMPV4, HEADERS_V4),
        Family::Ipv6 => (Protocol::ICMPV6, HEADERS_V6),
    };
    let (socket, is_raw) = match way.open(Type::RAW, Some(protocol)) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => (way.open(Type::DGRAM, Some(protocol))?, false),
        socket => (socket?, true),
    };
    let is_full = task.kind == ProbeKind::PathMtu;
    if is_full {
        netlink::forbid_fragments(&socket, way.family()).map_err(io::Error::other)?;
    }
    // Answers of other hosts are not received.
    socket.connect(&SockAddr::from(without_port(way)))?;
    let size = match u32::from(task.size) {
        0 if is_full => way.mtu,
        size => size,
    };
    let payload = usize::try_from(size.saturating_sub(headers)).unwrap_or(LEAST).max(LEAST);
    let identifier = match task.source_port {
        0 => NEXT_IDENTIFIER.fetch_add(1, Ordering::Relaxed),
        identifier => identifier,
    };
    Ok(Echo { way, socket, identifier, payload, is_raw })
}

impl Exchange for Echo<'_> {
    fn send(&mut self, number: u16) -> io::Result<()> {
        let kind = if self.way.family() == Family::Ipv4 { 8 } else { 128 };
        let [id_high, id_low] = self.identifier.to_be_bytes();
        let [number_high, number_low] = number.to_be_bytes();
        let mut message = vec![kind, 0, 0, 0, id_high, id_low, number_high, number_low];
        message.resize(8 + self.payload, 0x5a);
        if self.way.family() == Family::Ipv4 {
            // The kernel computes that of ICMPv6, which covers the addresses.
            let sum = super::packet::checksum(&message).to_be_bytes();
            message.splice(2..4, sum);
        }
        self.socket.send(&message).map(drop)
    }

    fn receive(&mut self, within: Duration) -> io::Result<Option<Answer>> {
        let mut buffer = [0; 128];
        let Some(length) = receive(&self.socket, &mut buffer, within)? else { return Ok(None) };
        let bytes = buffer.get(..length).unwrap_or_default();
        let message = match self.way.family() {
            Family::Ipv4 if self.is_raw => {
                let header = usize::from(bytes.first().copied().unwrap_or(0) & 0x0f) * 4;
                bytes.get(header..).unwrap_or_default()
            }
            Family::Ipv4 | Family::Ipv6 => bytes,
        };
        let answer = if self.way.family() == Family::Ipv4 { 0 } else { 129 };
        let &[kind, _, _, _, id_high, id_low, high, low, ..] = message else { return Ok(None) };
        // The kernel chose another identifier, and gives this socket no other answers.
        let is_ours = !self.is_raw || u16::from_be_bytes([id_high, id_low]) == self.identifier;
        let is_answer = kind == answer && is_ours;
        Ok(is_answer.then(|| Answer { number: u16::from_be_bytes([high, low]), failure: None }))
    }
}

/// A raw socket has no port.
fn without_port(way: &ProbeRoute) -> std::net::SocketAddr {
    let mut target = way.target;
    target.set_port(0);
    target
}

/// One packet, or `None` at the end of the time; its length.
pub(super) fn receive(socket: &Socket, buffer: &mut [u8], within: Duration) -> io::Result<Option<usize>> {
    // Zero would mean forever.
    socket.set_read_timeout(Some(within.max(Duration::from_millis(1))))?;
    let mut socket = socket;
    match socket.read(buffer) {
        Ok(length) => Ok(Some(length)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
