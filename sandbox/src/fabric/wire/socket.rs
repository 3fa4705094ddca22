//! The packet socket: every frame that arrives on any link of the fabric's namespace, with its 802.1Q tag.
//!
//! The kernel strips the tag from a received frame and reports it separately (`PACKET_AUXDATA`); a frame that is sent
//! carries it inline. Both are handled here, so that the fabric sees frames without tags.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::cmsg_space;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, recvmsg, setsockopt,
    socket, sockopt,
};
use vcn::VlanTag;

use crate::error::{ErrorContext, Result};
use crate::fabric::Port;

/// Larger than any frame: the longest that a link with MTU 9000 sends is 9018 bytes.
const FRAME: usize = 65_600;
/// The queue while the thread is busy. Granted to root only; the default works as well, with more losses.
const QUEUE: usize = 8 << 20;

const ETHERTYPE_AT: usize = 12;
const ETHERTYPE_8021Q: [u8; 2] = 0x8100_u16.to_be_bytes();
/// `struct tpacket_auxdata`: the tag comes after three 32-bit and two 16-bit fields (linux/if_packet.h).
const AUX_TCI_AT: usize = 16;

#[derive(Debug)]
pub(super) struct Frames(Vec<u8>);

impl Default for Frames {
    fn default() -> Self {
        Self(vec![0; FRAME])
    }
}

#[derive(Debug)]
pub(super) struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// Opens it in the calling thread's namespace; links made later are heard as well.
    pub(super) fn open() -> Result<Self> {
        let operation = || "open the fabric's packet socket";
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll).during(operation)?;
        let _ = setsockopt(&fd, sockopt::RcvBufForce, &QUEUE).or_else(|_| setsockopt(&fd, sockopt::RcvBuf, &QUEUE));
        enable(fd.as_fd(), libc::PACKET_AUXDATA).during(operation)?;
        enable(fd.as_fd(), libc::PACKET_IGNORE_OUTGOING).during(operation)?;
        Ok(Self(fd))
    }

    /// The next frame that is there, if any.
    pub(super) fn receive<'a>(&self, frames: &'a mut Frames) -> Option<(Port, &'a [u8])> {
        let mut auxiliary = cmsg_space!([u8; 32]);
        let (port, length) = {
            let mut parts = [io::IoSliceMut::new(&mut frames.0)];
            let message =
                recvmsg::<LinkAddr>(self.0.as_raw_fd(), &mut parts, Some(&mut auxiliary), MsgFlags::MSG_DONTWAIT)
                    .ok()?;
            let wire = u32::try_from(message.address?.ifindex()).ok()?;
            let tag = message.cmsgs().ok()?.find_map(|message| tag_of(&message));
            (Port { wire, tag }, message.bytes)
        };
        Some((port, frames.0.get(..length)?))
    }

    /// Sends a frame. What cannot be sent is lost, as on any wire: the link may just have been unplugged.
    pub(super) fn send(&self, port: Port, frame: &[u8]) {
        let sent = match (port.tag, frame.split_at_checked(ETHERTYPE_AT)) {
            (Some(tag), Some((addresses, rest))) => {
                let tagged = [addresses, &ETHERTYPE_8021Q, &tag.get().to_be_bytes(), rest].concat();
                send_on(self.0.as_fd(), port.wire, &tagged)
            }
            _ => send_on(self.0.as_fd(), port.wire, frame),
        };
        if let Err(error) = sent {
            tracing::debug!(%port, %error, "frame lost");
        }
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The tag in an auxiliary message; tag 0 only carries a priority.
fn tag_of(message: &ControlMessageOwned) -> Option<VlanTag> {
    let ControlMessageOwned::Unknown(message) = message else { return None };
    if message.cmsg_header.cmsg_level != libc::SOL_PACKET || message.cmsg_header.cmsg_type != libc::PACKET_AUXDATA {
        return None;
    }
    let status = u32::from_ne_bytes(*message.data_bytes.first_chunk()?);
    let tci = u16::from_ne_bytes(*message.data_bytes.get(AUX_TCI_AT..)?.first_chunk()?);
    (status & libc::TP_STATUS_VLAN_VALID != 0).then(|| VlanTag::new(tci & 0x0fff).ok()).flatten()
}

#[expect(unsafe_code, reason = "no crate wraps these options of packet sockets")]
fn enable(socket: BorrowedFd<'_>, option: libc::c_int) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the kernel reads `on`, of the size that is given, and keeps nothing.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            option,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[expect(unsafe_code, reason = "no crate makes a packet socket's address")]
fn send_on(socket: BorrowedFd<'_>, wire: u32, frame: &[u8]) -> io::Result<()> {
    // SAFETY: an all-zero sockaddr_ll is valid: it is plain numbers.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as libc::c_ushort;
    address.sll_ifindex = wire.try_into().map_err(io::Error::other)?;
    // SAFETY: the kernel reads the frame and the address, of the sizes that are given, and keeps nothing.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            frame.as_ptr().cast(),
            frame.len(),
            libc::MSG_DONTWAIT,
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
