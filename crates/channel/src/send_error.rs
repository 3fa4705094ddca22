//! Failures of requests: where they failed, and whether the peer refused our key.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use thiserror::Error;

use crate::BODY_MAX;

/// Why there is no reply.
#[derive(Debug, Error)]
pub enum SendError {
    /// No TCP connection could be made.
    #[error("connecting to {address} failed")]
    Connect {
        /// The address of the peer.
        address: SocketAddr,
        /// The error of the connect call.
        #[source]
        source: io::Error,
    },
    /// No TLS session: one of the keys is not the expected one, or the peer speaks something else.
    #[error(
        "the TLS handshake with {address} failed: one key is not the published one, or another program has the port"
    )]
    Handshake {
        /// The address of the peer.
        address: SocketAddr,
        /// The error of the TLS session.
        #[source]
        source: io::Error,
    },
    /// The reply did not come in time.
    #[error("the reply of {address} took longer than {} s", .limit.as_secs_f32())]
    Slow {
        /// The address of the peer.
        address: SocketAddr,
        /// The time that the caller allowed.
        limit: Duration,
    },
    /// The reply was longer than allowed.
    #[error("the reply of {0} is longer than {BODY_MAX} bytes")]
    TooLong(SocketAddr),
    /// The connection broke, or the peer sent no HTTP.
    #[error("the connection to {address} broke before the reply was complete")]
    Exchange {
        /// The address of the peer.
        address: SocketAddr,
        /// The error of HTTP or of the connection.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
}

impl SendError {
    /// Whether the peer answered, and did not accept our key or has another one.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Handshake { source, .. } if source.kind() != io::ErrorKind::TimedOut)
    }
}
