//! A veth pair passes packets on with their checksums unfinished and their segments uncut, because a kernel at the
//! other end needs neither. Here the other end is a program, which must see what a real wire would carry.

use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use netlink::Netns;
use nix::errno::Errno;
use vcn::IfName;

use crate::error::{ErrorContext, Result};

/// `ETHTOOL_STXCSUM` of linux/ethtool.h: sets the checksum offload of sent packets.
const SET_TX_CHECKSUM: u32 = 0x17;
/// `ETHTOOL_STSO` of linux/ethtool.h: sets TCP segmentation offload.
const SET_TSO: u32 = 0x1f;

/// `struct ethtool_value` of linux/ethtool.h; data 0 switches a feature off.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// Makes the kernel finish every packet before it leaves by a link.
pub(super) fn disable(netns: &Netns, name: &IfName) -> Result<()> {
    let disable = || -> Result<(), Errno> {
        let socket = UdpSocket::bind("0.0.0.0:0").map_err(errno)?;
        set(&socket, name, EthtoolValue { command: SET_TX_CHECKSUM, data: 0 })?;
        set(&socket, name, EthtoolValue { command: SET_TSO, data: 0 })
    };
    netns.run(disable).during(|| format!("reach {name}"))?.during(|| format!("switch the offloads of {name} off"))
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}

#[expect(unsafe_code, reason = "no crate wraps SIOCETHTOOL")]
fn set(socket: &UdpSocket, name: &IfName, mut value: EthtoolValue) -> Result<(), Errno> {
    // SAFETY: an all-zero ifreq is valid: it is plain numbers.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // An `IfName` is shorter than the field, so the closing NUL stays.
    for (to, from) in request.ifr_name.iter_mut().zip(name.as_str().bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: the kernel reads the request and the value behind it; both outlive the call.
    Errno::result(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) }).map(drop)
}
