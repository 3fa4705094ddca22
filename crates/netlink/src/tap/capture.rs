//! Whole packets with what the kernel knows about each, for a capture.

use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::sockopt::ReceiveTimestampns;
use nix::sys::socket::{ControlMessageOwned, LinkAddr, MsgFlags, recvmsg, setsockopt};
use nix::sys::time::TimeSpec;

use super::filter::{self, PacketFilter};
use super::{ALL_LINKS, losses, open, wait};
use crate::error::{Cause, Result};

/// A packet socket on one link or all links of a network namespace.
#[derive(Debug)]
pub struct CaptureTap {
    socket: OwnedFd,
    buffer: Vec<u8>,
    control: Vec<u8>,
}

/// A packet, from its network header on.
#[derive(Clone, Copy, Debug)]
pub struct CapturedPacket<'a> {
    /// When the kernel saw it, since 1970.
    pub time: Duration,
    /// The index of the link that it passed.
    pub index: u32,
    /// The link's kind (ARPHRD_…).
    pub hardware: u16,
    /// Its direction (PACKET_HOST, PACKET_OUTGOING, …).
    pub direction: u8,
    /// The sender's address on the link, and its length.
    pub sender: [u8; 8],
    /// The bytes of the address that are used.
    pub sender_length: u8,
    /// The protocol of its network header (ETH_P_…).
    pub protocol: u16,
    /// Its length on the link, without the link's header.
    pub length: u32,
    /// The first bytes of the packet.
    pub bytes: &'a [u8],
}

impl CaptureTap {
    /// Opens in the calling thread's network namespace; delivers at most so many bytes of a packet.
    ///
    /// # Errors
    /// Without CAP_NET_RAW, or when the link is gone.
    pub fn open(filter: PacketFilter, link: Option<u32>, packet_bytes_max: usize) -> Result<Self> {
        let socket = open(&mut filter::matching(filter), link.unwrap_or(ALL_LINKS))?;
        let stamped = setsockopt(&socket, ReceiveTimestampns, &true);
        stamped.map_err(|errno| Cause::from(errno).during("request times from", "a packet socket"))?;
        Ok(Self { socket, buffer: vec![0; packet_bytes_max], control: cmsg_space!(TimeSpec) })
    }

    /// The next packet, or `None` if there is none within the time.
    ///
    /// # Errors
    /// When the socket cannot be read.
    pub fn next(&mut self, within: Duration) -> Result<Option<CapturedPacket<'_>>> {
        // A packet that waits already, on a busy host, needs one call.
        let Some((length, from, time)) = (match self.receive()? {
            Some(received) => Some(received),
            None if wait(&self.socket, within)? => self.receive()?,
            None => None,
        }) else {
            return Ok(None);
        };
        let mut sender = [0; 8];
        for (to, byte) in sender.iter_mut().zip(from.addr().unwrap_or_default()) {
            *to = byte;
        }
        Ok(Some(CapturedPacket {
            time,
            index: u32::try_from(from.ifindex()).unwrap_or(0),
            hardware: from.hatype(),
            direction: from.pkttype(),
            sender,
            sender_length: u8::try_from(from.halen().min(6)).unwrap_or(0),
            protocol: u16::from_be(from.protocol()),
            length: u32::try_from(length).unwrap_or(u32::MAX),
            bytes: self.buffer.get(..length.min(self.buffer.len())).unwrap_or_default(),
        }))
    }

    /// The packets that were lost since the last call because nothing read them.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn losses(&self) -> Result<u32> {
        losses(&self.socket)
    }

    fn receive(&mut self) -> Result<Option<(usize, LinkAddr, Duration)>> {
        let mut parts = [IoSliceMut::new(&mut self.buffer)];
        // With this flag the length is the packet's, not the buffer's.
        let flags = MsgFlags::MSG_TRUNC;
        let message = match recvmsg::<LinkAddr>(self.socket.as_raw_fd(), &mut parts, Some(&mut self.control), flags) {
            Ok(message) => message,
            // Nothing waits, or a link went down.
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ENETDOWN) => return Ok(None),
            Err(errno) => return Err(Cause::from(errno).during("read", "a packet socket")),
        };
        let stamp = message.cmsgs().into_iter().flatten().find_map(|control| match control {
            ControlMessageOwned::ScmTimestampns(time) => Some(Duration::from(time)),
            _ => None,
        });
        let time = stamp.unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        Ok(message.address.map(|from| (message.bytes, from, time)))
    }
}
