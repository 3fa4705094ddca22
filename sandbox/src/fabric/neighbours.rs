//! The addresses that were answered for by ARP or NDP lately. The fabric delivers only to those, as a switch with a real
//! router behind it would: a pod address without an answer is unreachable, and is reported so.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use super::port::Port;

/// How long an answer counts. Short, so that a test finds a node that stops answering.
const KNOWN_FOR: Duration = Duration::from_secs(5);
/// The time between two requests.
const REQUEST_INTERVAL: Duration = Duration::from_millis(500);
/// Questions before giving up.
const MAX_REQUESTS: u32 = 4;
/// Frames that wait for one answer.
const MAX_WAITING: usize = 32;

/// One address at one port.
pub(super) type Key = (Port, IpAddr);

/// What to do with a frame for an address.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    Known(Vec<u8>),
    /// It waits; send a request now.
    Request,
    /// It waits; a request was sent.
    Waiting,
    Full,
}

/// A request that is due.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NeighbourTimer {
    Request(Key),
    /// No answer; this many frames are lost.
    GiveUp(Key, usize),
}

#[derive(Debug)]
enum Entry {
    Pending { requests: u32, next: Duration, waiting: Vec<Vec<u8>> },
    Known { until: Duration },
}

#[derive(Debug, Default)]
pub(super) struct Neighbours(BTreeMap<Key, Entry>);

impl Neighbours {
    /// Takes a frame for `key`: gives it back when the address is known, keeps it otherwise.
    pub(super) fn offer(&mut self, now: Duration, key: Key, frame: Vec<u8>) -> Lookup {
        match self.0.get_mut(&key) {
            Some(Entry::Known { until }) if *until > now => Lookup::Known(frame),
            Some(Entry::Pending { waiting, .. }) if waiting.len() >= MAX_WAITING => Lookup::Full,
            Some(Entry::Pending { waiting, .. }) => {
                waiting.push(frame);
                Lookup::Waiting
            }
            Some(Entry::Known { .. }) | None => {
                self.0.insert(key, Entry::Pending { requests: 1, next: now + REQUEST_INTERVAL, waiting: vec![frame] });
                Lookup::Request
            }
        }
    }

    /// The address answered: the frames that waited for it.
    pub(super) fn answered(&mut self, now: Duration, key: Key) -> Vec<Vec<u8>> {
        match self.0.insert(key, Entry::Known { until: now + KNOWN_FOR }) {
            Some(Entry::Pending { waiting, .. }) => waiting,
            Some(Entry::Known { .. }) | None => Vec::new(),
        }
    }

    /// The questions whose time has come; forgets what is too old.
    pub(super) fn due(&mut self, now: Duration) -> Vec<NeighbourTimer> {
        let mut due = Vec::new();
        self.0.retain(|key, entry| match entry {
            Entry::Known { until } => *until > now,
            Entry::Pending { next, .. } if *next > now => true,
            Entry::Pending { requests, waiting, .. } if *requests >= MAX_REQUESTS => {
                due.push(NeighbourTimer::GiveUp(*key, waiting.len()));
                false
            }
            Entry::Pending { requests, next, .. } => {
                *requests += 1;
                *next = now + REQUEST_INTERVAL;
                due.push(NeighbourTimer::Request(*key));
                true
            }
        });
        due
    }

    /// A port is gone.
    pub(super) fn forget(&mut self, port: Port) {
        self.0.retain(|(at, _), _| *at != port);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = (Port { wire: 1, tag: None }, IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)));

    #[test]
    fn an_answer_counts_for_a_while() {
        let mut table = Neighbours::default();
        assert_eq!(table.offer(Duration::ZERO, KEY, vec![1]), Lookup::Request);
        assert_eq!(table.answered(Duration::ZERO, KEY), [vec![1]]);
        assert_eq!(table.offer(KNOWN_FOR / 2, KEY, vec![2]), Lookup::Known(vec![2]));
        assert_eq!(table.offer(KNOWN_FOR, KEY, vec![3]), Lookup::Request);
    }

    #[test]
    fn the_queue_is_bounded() {
        let mut table = Neighbours::default();
        for _ in 0..MAX_WAITING {
            assert!(matches!(table.offer(Duration::ZERO, KEY, vec![]), Lookup::Request | Lookup::Waiting));
        }
        assert_eq!(table.offer(Duration::ZERO, KEY, vec![]), Lookup::Full);
    }
}
