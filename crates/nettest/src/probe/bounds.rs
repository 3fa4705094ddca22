//! The bounds of a probe request. The agent refuses what exceeds them, whatever the controller requests.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use thiserror::Error;

use super::{PROBE_VERSION, ProbeKind, ProbeRequest, ProbeTarget, SendTask, Task};
use api::TargetService;

/// The most bytes of a request.
pub const REQUEST_MAX: usize = 4096;
/// The most packets or requests of one task.
pub const COUNT_MAX: u8 = 100;
/// The shortest interval between two, in milliseconds: 100 per second.
pub const INTERVAL_MIN_MS: u16 = 10;
/// The longest wait for one answer, in milliseconds.
pub const TIMEOUT_MAX_MS: u16 = 5_000;
/// The longest task, in milliseconds.
pub const TASK_MAX_MS: u32 = 30_000;
/// The largest packet: the VCN's MTU.
pub const SIZE_MAX: u16 = 9_000;
/// The most megabits per second of a probe of throughput.
pub const MBITS_MAX: u16 = 10_000;
/// How long a probe of throughput sends, in milliseconds.
pub const THROUGHPUT_MS: u16 = 2_000;
/// The least port that receives: lower ones are those of the system's services.
const RECEIVE_PORT_MIN: u16 = 1_024;
/// The longest name and path.
const TEXT_MAX: usize = 253;

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProbeError {
    /// More bytes than any request needs.
    #[error("the request has {0} bytes, more than {REQUEST_MAX}")]
    TooLong(usize),
    /// No request of this version.
    #[error("the request cannot be read: {0}")]
    Unreadable(String),
    /// The request has another version of the protocol.
    #[error("the request has version {0}, not {PROBE_VERSION}: update the agent or the controller")]
    Version(u8),
    /// A number out of bounds.
    #[error("{field} is {value}, not {least} to {most}")]
    OutOfBounds {
        /// The name of the field.
        field: &'static str,
        /// The value of the field.
        value: u64,
        /// The least permitted value.
        least: u64,
        /// The largest permitted value.
        most: u64,
    },
    /// A text that is too long or has forbidden characters.
    #[error("{0} is not a text that a probe can send")]
    Text(&'static str),
    /// A field that the kind needs or does not have.
    #[error("{0} does not fit the kind of probe")]
    Unfit(&'static str),
    /// Probes to this address are forbidden.
    #[error("{0} is never probed: loopback, link-local, multicast and the metadata service are excluded")]
    Forbidden(IpAddr),
}

impl ProbeRequest {
    /// A request of our version.
    pub const fn new(task: Task) -> Self {
        Self { version: PROBE_VERSION, task }
    }

    /// Reads a request, and checks its bounds.
    ///
    /// # Errors
    /// When it cannot be read, or exceeds a bound.
    pub fn read(body: &[u8]) -> Result<Self, ProbeError> {
        if body.len() > REQUEST_MAX {
            return Err(ProbeError::TooLong(body.len()));
        }
        let request: Self = serde_json::from_slice(body).map_err(|error| ProbeError::Unreadable(error.to_string()))?;
        request.check()?;
        Ok(request)
    }

    /// Checks the bounds.
    ///
    /// # Errors
    /// When one is exceeded.
    pub fn check(&self) -> Result<(), ProbeError> {
        if self.version != PROBE_VERSION {
            return Err(ProbeError::Version(self.version));
        }
        match &self.task {
            Task::Send(send) => send.check(),
            Task::Watch(watch) => {
                within("forMs", watch.for_ms.into(), 1, TASK_MAX_MS.into())?;
                allowed(watch.flow.source)?;
                allowed(watch.flow.target)
            }
            // Its target is the source of the flow: the packet goes the other way.
            Task::Open(flow) => {
                within("port", flow.port.into(), 1, u16::MAX.into())?;
                within("sourcePort", flow.source_port.into(), 1, u16::MAX.into())?;
                allowed(flow.source)
            }
            Task::Receive(receive) => {
                within("forMs", receive.for_ms.into(), 1, TASK_MAX_MS.into())?;
                within("port", receive.port.into(), RECEIVE_PORT_MIN.into(), u16::MAX.into())?;
                allowed(receive.address)?;
                allowed(receive.from)
            }
        }
    }
}

impl SendTask {
    /// The longest time that it may take, in milliseconds.
    pub fn longest_ms(&self) -> u32 {
        if self.kind == ProbeKind::Throughput {
            // It connects, waits for the receiver's greeting, sends, and waits until all is received.
            return u32::from(THROUGHPUT_MS) + 3 * u32::from(self.timeout_ms);
        }
        let between = u32::from(self.count.saturating_sub(1)) * u32::from(self.interval_ms);
        // Requests of TCP are made one after the other; those of the other kinds overlap.
        let waits = match self.kind {
            ProbeKind::Tcp | ProbeKind::Http | ProbeKind::Https => u32::from(self.count),
            ProbeKind::Dns if self.over_tcp => u32::from(self.count),
            _ => 1,
        };
        between + waits * u32::from(self.timeout_ms)
    }

    fn check(&self) -> Result<(), ProbeError> {
        within("count", self.count.into(), 1, COUNT_MAX.into())?;
        within("intervalMs", self.interval_ms.into(), INTERVAL_MIN_MS.into(), u16::MAX.into())?;
        within("timeoutMs", self.timeout_ms.into(), 1, TIMEOUT_MAX_MS.into())?;
        within("the task in milliseconds", self.longest_ms().into(), 1, TASK_MAX_MS.into())?;
        within("size", self.size.into(), 0, SIZE_MAX.into())?;
        let measures = self.kind == ProbeKind::Throughput;
        if measures != self.mbits.is_some() {
            return Err(ProbeError::Unfit("mbits"));
        }
        within("mbits", self.mbits.unwrap_or(1).into(), 1, MBITS_MAX.into())?;
        let needs_port = measures || matches!(self.kind, ProbeKind::Tcp | ProbeKind::Udp);
        let is_service = matches!(self.target, ProbeTarget::Service(_));
        if needs_port && self.port == 0 && !is_service {
            return Err(ProbeError::Unfit("port"));
        }
        text("name", self.name.as_deref(), |char| char.is_ascii_alphanumeric() || matches!(char, '-' | '.' | '_'))?;
        text("path", self.path.as_deref(), |char| char.is_ascii_graphic())?;
        match &self.target {
            ProbeTarget::Address(address) => allowed(*address),
            ProbeTarget::Host(host) => {
                text("host", Some(host), |char| char.is_ascii_alphanumeric() || matches!(char, '-' | '.' | '_'))
            }
            // They have no TLS.
            ProbeTarget::Service(TargetService::Imds | TargetService::Dns | TargetService::Gateway)
                if self.kind == ProbeKind::Https =>
            {
                Err(ProbeError::Unfit("service"))
            }
            // The controller makes nodes and names of these.
            ProbeTarget::Service(TargetService::Peers | TargetService::OciServices) => {
                Err(ProbeError::Unfit("service"))
            }
            ProbeTarget::Service(_) => Ok(()),
        }
    }
}

/// Checks that probes may go to an address. The agent calls it for what a name resolves to, too, just before it connects.
///
/// # Errors
/// For an address of this host alone, of a link, of a group, or of the metadata service.
pub fn allowed(address: IpAddr) -> Result<(), ProbeError> {
    let forbidden = match address.to_canonical() {
        IpAddr::V4(v4) => {
            v4.is_loopback()
                || v4.is_unspecified()
                || v4.is_link_local()
                || v4.is_multicast()
                || v4.is_broadcast()
                || v4.octets()[0] == 0
        }
        IpAddr::V6(v6) => {
            v6.is_loopback()
                || v6.is_unspecified()
                || v6.is_multicast()
                || v6.is_unicast_link_local()
                || v6 == vcn::METADATA_ADDRESS_V6
                || embeds_forbidden(v6)
        }
    };
    if forbidden { Err(ProbeError::Forbidden(address)) } else { Ok(()) }
}

/// Whether a translator or tunnel on the path could make a forbidden IPv4 address of it. Prefixes of single networks are unknown
/// here.
fn embeds_forbidden(address: Ipv6Addr) -> bool {
    let is_forbidden = |octets: [u8; 4]| allowed(Ipv4Addr::from(octets).into()).is_err();
    match address.octets() {
        // Local NAT64 (RFC 8215) with a prefix of 48, 56, 64 or 96 bits (RFC 6052 §2.2). Of the lengths that are not used, the
        // octets are zero.
        [0, 0x64, 0xff, 0x9b, 0, 1, a, b, _, c, d, e, f, g, h, i] => {
            let candidates = [[a, b, c, d], [b, c, d, e], [c, d, e, f], [f, g, h, i]];
            let mut used = candidates.into_iter().filter(|octets| octets[0] != 0).peekable();
            used.peek().is_none() || used.any(is_forbidden)
        }
        // NAT64 (RFC 6052), IPv4-compatible (RFC 4291 §2.5.5.1), IPv4-translated (RFC 2765 §2.1).
        [0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d]
        | [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d]
        | [0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, a, b, c, d] => is_forbidden([a, b, c, d]),
        // Teredo (RFC 4380 §4): the server, and the client with its bits inverted.
        [0x20, 0x01, 0, 0, a, b, c, d, _, _, _, _, e, f, g, h] => {
            is_forbidden([a, b, c, d]) || is_forbidden([!e, !f, !g, !h])
        }
        // 6to4 (RFC 3056). The rest may be an address of ISATAP.
        [0x20, 0x02, a, b, c, d, ..] if is_forbidden([a, b, c, d]) => true,
        // ISATAP (RFC 5214 §6.1), in any subnet.
        [.., 0 | 2, 0, 0x5e, 0xfe, a, b, c, d] => is_forbidden([a, b, c, d]),
        _ => false,
    }
}

fn within(field: &'static str, value: u64, least: u64, most: u64) -> Result<(), ProbeError> {
    if (least..=most).contains(&value) { Ok(()) } else { Err(ProbeError::OutOfBounds { field, value, least, most }) }
}

fn text(field: &'static str, text: Option<&str>, fits: impl Fn(char) -> bool) -> Result<(), ProbeError> {
    match text {
        Some(text) if text.is_empty() || text.len() > TEXT_MAX || !text.chars().all(fits) => {
            Err(ProbeError::Text(field))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
