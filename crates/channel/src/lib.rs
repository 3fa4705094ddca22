//! Requests between the controller and the agents: HTTP/1.1 over TLS 1.3. Each side proves that it has the private key of a
//! public key that the other side was given before. There is no certificate authority and no bearer token (P7).
//!
//! ```text
//!   controller ── Client::send(Peer { address, key }) ──▶ TLS: both keys compared ──▶ serve ── Handler ── agent
//! ```
//!
//! The keys are raw public keys (RFC 7250), so no certificate is issued, expires or is parsed. Where a fingerprint comes from
//! is the programs' task: an annotation of the agent's Pod, a ConfigMap of the controller.

mod admission;
mod announcement;
mod client;
mod delivery;
mod fingerprint;
mod identity;
mod message;
mod reply_stream;
mod send_error;
mod server;
mod verify;

pub use admission::{Limits, Share};
pub use announcement::Announcement;
pub use client::{Client, Peer};
pub use delivery::SentReply;
pub use fingerprint::{Fingerprint, FingerprintError};
pub use identity::{Identity, IdentityError};
pub use message::{Reply, Request};
pub use reply_stream::ReplyStream;
pub use send_error::SendError;
pub use server::{Handler, serve};
pub use verify::TrustedKeys;

/// The longest body of a request or a reply.
pub const BODY_MAX: usize = 64 * 1024;

/// The longest head of a request or a reply.
const HEAD_MAX: usize = 16 * 1024;
