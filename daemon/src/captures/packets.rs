//! Packets of the host's network, from a packet socket into a file.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use api::node_task::{PacketCapture, PacketProtocol};
use netlink::{CaptureTap, PacketFilter, Socket};
use resident::logging::chain;
use vcn::IfName;

use super::error::CaptureError;
use super::headers;
use super::pcap::PacketFile;
use super::space::FreeSpace;

/// The longest capture, and how long one without this option takes, in seconds.
const SECONDS_MAX: u16 = 300;
const SECONDS: u16 = 30;
/// The largest file, and the size of one without this option, in MiB.
const SIZE_MAX: u8 = 64;
const SIZE: u8 = 16;
/// The longest wait for a packet, after which the stop flag is read.
const WAIT: Duration = Duration::from_millis(200);
/// Between two checks of the free space.
const CHECK: Duration = Duration::from_secs(1);
/// More than all headers of a packet.
const HEADERS_MAX: usize = 512;
/// A whole packet, also one that the network card puts together.
const PACKET_MAX: usize = 64 << 10;
/// The most links that are listed.
const LINKS_MAX: usize = 1000;

#[derive(Clone, Debug, Default)]
pub(super) struct CapturedPackets {
    pub(super) packets: u64,
    /// Lost because this program was not fast enough.
    pub(super) lost: u64,
    pub(super) bytes: u64,
    /// Whether the file's size ended it before its time.
    pub(super) is_full: bool,
    /// The links of the host, a line each: the file has their indexes.
    pub(super) links: String,
}

pub(super) struct PacketSource {
    tap: CaptureTap,
    seconds: u16,
    bytes_max: u64,
    has_payload: bool,
    links: String,
}

/// The largest size of the file, in bytes.
pub(super) fn bytes_max(request: &PacketCapture) -> u64 {
    u64::from(request.size_mib.unwrap_or(SIZE).clamp(1, SIZE_MAX)) << 20
}

impl PacketSource {
    /// Opens the packet socket: what arrives from now on is captured.
    pub(super) fn open(request: &PacketCapture) -> Result<Self, CaptureError> {
        let links = Socket::open().and_then(|mut socket| socket.links());
        let links = links.map_err(|error| CaptureError::Packets(chain(&error)))?;
        let link = match request.interface.as_deref().map(IfName::new) {
            None => None,
            Some(name) => {
                let name = name.map_err(|error| CaptureError::Request(error.to_string()))?;
                let found = links.iter().find(|link| link.name == name);
                Some(
                    found
                        .ok_or_else(|| CaptureError::Request(format!("the node does not have the link {name}")))?
                        .index,
                )
            }
        };
        let protocol = request.protocol.map(|protocol| match protocol {
            PacketProtocol::TCP => netlink::PacketProtocol::Tcp,
            PacketProtocol::UDP => netlink::PacketProtocol::Udp,
            PacketProtocol::ICMP => netlink::PacketProtocol::Icmp,
            PacketProtocol::ARP => netlink::PacketProtocol::Arp,
        });
        let filter = PacketFilter { protocol, host: request.host, port: request.port };
        let packet_max = if request.payload { PACKET_MAX } else { HEADERS_MAX };
        let tap = CaptureTap::open(filter, link, packet_max);
        let line = |link: &netlink::Link| format!("{} {}\n", link.index, link.name);
        Ok(Self {
            tap: tap.map_err(|error| CaptureError::Packets(chain(&error)))?,
            seconds: request.seconds.unwrap_or(SECONDS).clamp(1, SECONDS_MAX),
            bytes_max: bytes_max(request),
            has_payload: request.payload,
            links: links.iter().take(LINKS_MAX).map(line).collect(),
        })
    }

    /// Writes packets until the time or the file's room is over, or `stop` is set.
    pub(super) fn write(mut self, path: &Path, stop: &AtomicBool) -> Result<CapturedPackets, CaptureError> {
        let failed = |error: io::Error| CaptureError::Write("packets", error);
        let file = super::store::create(path).map_err(failed)?;
        let mut file = PacketFile::create(BufWriter::<File>::new(file), self.bytes_max).map_err(failed)?;
        let mut captured = CapturedPackets { links: self.links, ..CapturedPackets::default() };
        let begun = Instant::now();
        let end = begun + Duration::from_secs(self.seconds.into());
        let mut checked = begun;
        while !stop.load(Ordering::Relaxed) && !captured.is_full {
            let now = Instant::now();
            if now >= end {
                break;
            }
            if now - checked >= CHECK {
                checked = now;
                FreeSpace::of(path)?.check(0)?;
                captured.lost += self.tap.losses().map_or(0, u64::from);
            }
            let next = self.tap.next(WAIT.min(end - now)).map_err(|error| CaptureError::Packets(chain(&error)))?;
            let Some(packet) = next else { continue };
            let length =
                if self.has_payload { packet.bytes.len() } else { headers::length(packet.protocol, packet.bytes) };
            let is_kept = file.append(&packet, packet.bytes.get(..length).unwrap_or_default()).map_err(failed)?;
            captured.is_full = !is_kept;
            captured.packets += u64::from(is_kept);
        }
        captured.lost += self.tap.losses().map_or(0, u64::from);
        captured.bytes = file.bytes();
        file.finish().map_err(failed)?;
        Ok(captured)
    }
}
