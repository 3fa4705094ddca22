//! Telling a link's neighbours where an address lives now: gratuitous ARP, unsolicited neighbour advertisement. Whole
//! Ethernet frames: the IPv6 stack would refuse to speak for an address that it is still checking, or does not have.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use vcn::MacAddr;

use crate::error::{Cause, Result};

const BROADCAST: [u8; 6] = [0xff; 6];
/// The Ethernet group of ff02::1.
const ALL_NODES: [u8; 6] = [0x33, 0x33, 0, 0, 0, 1];
const ETHERTYPE_ARP: [u8; 2] = [0x08, 0x06];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
const ICMPV6: u8 = 58;

/// Sends announcements by the links of one network namespace.
#[derive(Debug)]
pub struct Announcer {
    socket: OwnedFd,
}

impl Announcer {
    /// Opens in the calling thread's network namespace.
    ///
    /// # Errors
    /// Without CAP_NET_RAW.
    pub fn open() -> Result<Self> {
        // No protocol: nothing is received.
        match socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None) {
            Ok(socket) => Ok(Self { socket }),
            Err(errno) => Err(Cause::from(errno).during("open", "a packet socket")),
        }
    }

    /// Tells the neighbours on a link that the address is at this Ethernet address. Once: send again a second later for
    /// those who missed it.
    ///
    /// On a link that just got its carrier the kernel drops what is sent and says that it sent it, until the link's
    /// state has settled. [`crate::Socket::link_at`] waits for that.
    ///
    /// # Errors
    /// When the link is gone or down (ENETDOWN, or ENXIO which `is_not_found()`).
    pub fn announce(&self, index: u32, address: IpAddr, mac: MacAddr) -> Result<()> {
        let send = || match address {
            // Some listen to requests only, others to replies only.
            IpAddr::V4(address) => {
                [1, 2].into_iter().try_for_each(|operation| self.send(index, &arp(operation, address, mac)))
            }
            IpAddr::V6(address) => self.send(index, &advertisement(address, mac)),
        };
        send().map_err(|errno| Cause::from(errno).during("announce", address))
    }

    #[expect(unsafe_code, reason = "nix makes no packet socket addresses")]
    fn send(&self, index: u32, frame: &[u8]) -> Result<(), Errno> {
        // SAFETY: an all-zero sockaddr_ll is valid: it is plain numbers.
        let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        to.sll_family = u16::try_from(libc::AF_PACKET).unwrap_or(0);
        to.sll_ifindex = i32::try_from(index).map_err(|_| Errno::ENODEV)?;
        let length = u32::try_from(size_of::<libc::sockaddr_ll>()).unwrap_or(0);
        // SAFETY: the kernel reads the frame and the address, each within its length.
        let sent = unsafe {
            libc::sendto(self.socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0, (&raw const to).cast(), length)
        };
        Errno::result(sent).map(|_| ())
    }
}

/// RFC 5227 §3: sender and target are the announced address.
fn arp(operation: u8, address: Ipv4Addr, MacAddr(mac): MacAddr) -> Vec<u8> {
    let target = if operation == 1 { [0; 6] } else { BROADCAST };
    let ethernet_and_ipv4 = [0, 1, 0x08, 0, 6, 4, 0, operation];
    [&BROADCAST, &mac, &ETHERTYPE_ARP[..], &ethernet_and_ipv4, &mac, &address.octets(), &target, &address.octets()]
        .concat()
}

/// RFC 4861 §7.2.6: to all nodes, with the override flag.
fn advertisement(address: Ipv6Addr, MacAddr(mac): MacAddr) -> Vec<u8> {
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1).octets();
    let message = |checksum: u16| {
        let head = [136, 0];
        let override_flag = [0x20, 0, 0, 0];
        let target_link_layer = [2, 1];
        [&head[..], &checksum.to_be_bytes(), &override_flag, &address.octets(), &target_link_layer, &mac].concat()
    };
    let length = u16::try_from(message(0).len()).unwrap_or(0).to_be_bytes();
    let pseudo_header = [&address.octets()[..], &all_nodes, &[0, 0], &length, &[0, 0, 0, ICMPV6], &message(0)].concat();
    let version = [0x60, 0, 0, 0];
    let next_and_hops = [ICMPV6, 255];
    [
        &ALL_NODES[..],
        &mac,
        &ETHERTYPE_IPV6,
        &version,
        &length,
        &next_and_hops,
        &address.octets(),
        &all_nodes,
        &message(internet_checksum(&pseudo_header)),
    ]
    .concat()
}

/// RFC 1071, of an even number of bytes.
fn internet_checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| pair.iter().fold(0, |word, byte| word << 8 | u32::from(*byte)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(u16::MAX)
}
