//! Whether a reply arrived: the kernel knows which bytes the peer has acknowledged. A request proves one direction, and small
//! packets; that its reply arrived proves the other one, with packets as large as the reply has.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{getsockopt, sockopt};
use tokio::net::TcpStream;
use tokio::time::sleep;

/// How long an acknowledgement may take, with a few retransmissions.
const ACKNOWLEDGED: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// A reply to a trusted peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentReply {
    /// The address of the peer that got the reply.
    pub peer: IpAddr,
    /// When the connection began.
    pub accepted: Instant,
    /// The largest TCP payload that both ends take, without IP and TCP headers.
    pub segment: Option<u32>,
    /// Whether the whole reply arrived: both directions work, with packets of the reply's size.
    pub is_acknowledged: bool,
}

/// A second descriptor of a connection, which outlives the server's use of it.
pub(crate) struct ReplyObserver {
    socket: OwnedFd,
    reply: SentReply,
}

impl ReplyObserver {
    /// Of a connection that was just accepted; nothing without a free descriptor.
    pub(crate) fn of(stream: &TcpStream, peer: SocketAddr) -> Option<Self> {
        let socket = stream.as_fd().try_clone_to_owned().ok()?;
        let segment = getsockopt(&socket, sockopt::TcpMaxSeg).ok();
        let (peer, accepted) = (peer.ip().to_canonical(), Instant::now());
        Some(Self { socket, reply: SentReply { peer, accepted, segment, is_acknowledged: false } })
    }

    /// Waits until the peer has acknowledged all that was sent, for a few seconds.
    pub(crate) async fn outcome(self) -> SentReply {
        let deadline = Instant::now() + ACKNOWLEDGED;
        loop {
            match unacknowledged(&self.socket) {
                Ok(0) => return SentReply { is_acknowledged: true, ..self.reply },
                Ok(_) if Instant::now() < deadline => sleep(PAUSE).await,
                _ => return self.reply,
            }
        }
    }
}

/// The bytes that were sent and not acknowledged.
#[expect(unsafe_code, reason = "no crate wraps this request")]
fn unacknowledged(socket: &OwnedFd) -> Result<libc::c_int, Errno> {
    let mut bytes = 0;
    // SAFETY: the kernel writes one number, and the socket is open.
    Errno::result(unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) })?;
    Ok(bytes)
}
