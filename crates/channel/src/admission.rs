//! Which connections are accepted. A handshake costs a signature before the peer has proved anything, so strangers must neither
//! use up the processor nor keep the controller out.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many connections a server accepts. One more is closed before a byte is read.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Handshakes of one address in a second. The controller asks an agent once in minutes.
    pub per_source: u32,
    /// Handshakes of all addresses in a second; 100 take about 2 % of a core.
    pub in_all: u32,
    /// Open connections.
    pub open: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { per_source: 8, in_all: 100, open: 256 }
    }
}

const SECOND: Duration = Duration::from_secs(1);

/// The connections of this second, and those that are open.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    limits: Limits,
    second: Option<Instant>,
    sources: HashMap<IpAddr, u32>,
    in_all: u32,
    open: Arc<()>,
}

/// A place among the open connections, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    _open: Arc<()>,
}

impl Admission {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// A place for a connection; none while its source, or all together, have had their share of this second.
    pub(crate) fn admit(&mut self, source: IpAddr, now: Instant) -> Option<ConnectionSlot> {
        if self.second.is_none_or(|second| now.saturating_duration_since(second) >= SECOND) {
            (self.second, self.in_all) = (Some(now), 0);
            self.sources.clear();
        }
        let of_source = self.sources.get(&source).copied().unwrap_or_default();
        let Limits { per_source, in_all, open } = self.limits;
        if of_source >= per_source || self.in_all >= in_all || Arc::strong_count(&self.open) > open {
            return None;
        }
        self.sources.insert(source, of_source + 1);
        self.in_all += 1;
        Some(ConnectionSlot { _open: self.open.clone() })
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn source(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }

    #[test]
    fn source_beyond_its_share_keeps_no_other_out() {
        let (mut admission, now) = (Admission::default(), Instant::now());
        let places: Vec<_> = (0..1000).filter_map(|_| admission.admit(source(1), now)).collect();
        assert_eq!(places.len(), 8);
        assert!(admission.admit(source(2), now).is_some());
        assert!(admission.admit(source(1), now + SECOND).is_some());
    }

    #[test]
    fn all_sources_together_are_bounded() {
        let (mut admission, now) = (Admission::default(), Instant::now());
        let at = |second: u32| now + SECOND * second;
        let first: Vec<_> = (0..1000).filter_map(|number| admission.admit(source(number), now)).collect();
        assert_eq!(first.len(), 100);
        let open = (1..10).flat_map(|second| (0..100).map(move |number| (second, number)));
        let rest: Vec<_> = open.filter_map(|(second, number)| admission.admit(source(number), at(second))).collect();
        assert_eq!(first.len() + rest.len(), 256);
        drop(first);
        assert!(admission.admit(source(1), at(20)).is_some());
    }
}
