//! Packets as the links of this host carry them: a packet socket that reads, and the option that keeps routers from
//! fragmenting. Incoming packets are seen before netfilter, outgoing ones after it.

mod capture;
mod filter;

pub use capture::{CaptureTap, CapturedPacket};
pub use filter::{PacketFilter, PacketProtocol};

use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::RcvBufForce;
use nix::sys::socket::{AddressFamily, LinkAddr, SockFlag, SockType, recvfrom, setsockopt, socket};
use vcn::Family;

use crate::error::{Cause, Result};

/// The receive buffer in bytes: a burst of some ten thousand packets, while the reader does not run.
const BUFFER: usize = 8 << 20;
/// The index that means every link.
const ALL_LINKS: u32 = 0;
/// More than the headers of any packet that is recognized, and of the packet within an ICMP error.
const HEADERS: usize = 192;

/// A packet socket on all links of one network namespace, for the packets between two addresses and the ICMP errors about
/// them.
#[derive(Debug)]
pub struct PacketTap {
    socket: OwnedFd,
    buffer: [u8; HEADERS],
}

/// A packet, from its IP header on, cut after its headers.
#[derive(Clone, Copy, Debug)]
pub struct SeenPacket<'a> {
    /// The index of the link that it passed.
    pub index: u32,
    /// Whether this host sent it.
    pub outgoing: bool,
    /// The first bytes of the packet.
    pub bytes: &'a [u8],
}

impl PacketTap {
    /// Opens in the calling thread's network namespace.
    ///
    /// # Errors
    /// Without CAP_NET_RAW.
    pub fn open(source: IpAddr, target: IpAddr) -> Result<Self> {
        let socket = open(&mut filter::between(source, target), ALL_LINKS)?;
        Ok(Self { socket, buffer: [0; HEADERS] })
    }

    /// The next packet, or `None` if there is none within the time.
    ///
    /// # Errors
    /// When the socket cannot be read.
    pub fn next(&mut self, within: Duration) -> Result<Option<SeenPacket<'_>>> {
        if !wait(&self.socket, within)? {
            return Ok(None);
        }
        let received = recvfrom::<LinkAddr>(self.socket.as_raw_fd(), &mut self.buffer);
        let (length, from) = match received {
            Ok(received) => received,
            // A link that went down.
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ENETDOWN) => return Ok(None),
            Err(errno) => return Err(Cause::from(errno).during("read", "a packet socket")),
        };
        let Some(from) = from else { return Ok(None) };
        let index = u32::try_from(from.ifindex()).unwrap_or(0);
        let bytes = self.buffer.get(..length).unwrap_or_default();
        Ok(Some(SeenPacket { index, outgoing: from.pkttype() == libc::PACKET_OUTGOING, bytes }))
    }

    /// Whether packets were lost since the last call because nothing read them.
    ///
    /// # Errors
    /// When the kernel does not report it.
    pub fn has_lost(&self) -> Result<bool> {
        Ok(losses(&self.socket)? > 0)
    }
}

/// Opens a packet socket that gets what a program passes, on the link with this index.
fn open(program: &mut [libc::sock_filter], link: u32) -> Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    // Without a protocol the socket gets no packet before it has the filter.
    let opened = socket(AddressFamily::Packet, SockType::Datagram, flags, None);
    let socket = opened.map_err(|errno| Cause::from(errno).during("open", "a packet socket"))?;
    attach(&socket, program)?;
    // Without CAP_NET_ADMIN the buffer is smaller; what is lost then is counted.
    let _ = setsockopt(&socket, RcvBufForce, &BUFFER);
    receive_all(&socket, link)?;
    Ok(socket)
}

/// Waits for a packet; returns whether there is one.
fn wait(socket: &OwnedFd, within: Duration) -> Result<bool> {
    let timeout = PollTimeout::try_from(within).unwrap_or(PollTimeout::ZERO);
    let mut ready = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    match poll(&mut ready, timeout) {
        Ok(0) | Err(Errno::EINTR) => Ok(false),
        Ok(_) => Ok(true),
        Err(errno) => Err(Cause::from(errno).during("read", "a packet socket")),
    }
}

/// The packets that were lost since the last call.
#[expect(unsafe_code, reason = "nix does not have this option")]
fn losses(socket: &OwnedFd) -> Result<u32> {
    let mut counted = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut length = u32::try_from(size_of::<libc::tpacket_stats>()).unwrap_or(0);
    // SAFETY: the kernel writes at most `length` bytes of plain numbers.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut counted).cast(),
            &raw mut length,
        )
    };
    Errno::result(result).map_err(|errno| Cause::from(errno).during("read the losses of", "a packet socket"))?;
    Ok(counted.tp_drops)
}

/// Lets the kernel queue only the packets that a program passes.
#[expect(unsafe_code, reason = "nix does not have this option")]
fn attach(socket: &impl AsFd, program: &mut [libc::sock_filter]) -> Result<()> {
    let len = u16::try_from(program.len()).unwrap_or(u16::MAX);
    let program = libc::sock_fprog { len, filter: program.as_mut_ptr() };
    let length = u32::try_from(size_of::<libc::sock_fprog>()).unwrap_or(0);
    // SAFETY: the kernel copies the `len` instructions that the pointer has.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            length,
        )
    };
    Errno::result(result).map_err(|errno| Cause::from(errno).during("attach a filter to", "a packet socket"))?;
    Ok(())
}

/// Binds a packet socket to every protocol, on one link or all.
#[expect(unsafe_code, reason = "nix cannot make this address")]
fn receive_all(socket: &impl AsFd, link: u32) -> Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: u16::try_from(libc::AF_PACKET).unwrap_or(0),
        sll_protocol: u16::try_from(libc::ETH_P_ALL).unwrap_or(0).to_be(),
        sll_ifindex: i32::try_from(link).unwrap_or(i32::MAX),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = u32::try_from(size_of::<libc::sockaddr_ll>()).unwrap_or(0);
    // SAFETY: the kernel reads `length` bytes of the address.
    let result = unsafe { libc::bind(socket.as_fd().as_raw_fd(), (&raw const address).cast(), length) };
    Errno::result(result).map_err(|errno| Cause::from(errno).during("bind", "a packet socket"))?;
    Ok(())
}

/// Lets no router fragment what a socket sends, and sends each packet up to the link's MTU whatever smaller MTU the path had.
///
/// # Errors
/// When the kernel refuses it.
#[expect(unsafe_code, reason = "nix does not have this option")]
pub fn forbid_fragments(socket: &impl AsFd, family: Family) -> Result<()> {
    let (level, option, value) = match family {
        Family::Ipv4 => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE),
        Family::Ipv6 => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE),
    };
    let length = u32::try_from(size_of::<libc::c_int>()).unwrap_or(0);
    // SAFETY: the kernel reads one number.
    let result =
        unsafe { libc::setsockopt(socket.as_fd().as_raw_fd(), level, option, (&raw const value).cast(), length) };
    Errno::result(result).map_err(|errno| Cause::from(errno).during("forbid fragments of", family))?;
    Ok(())
}
