//! Counts the packets of one flow on this host's links, on a thread of its own, for as long as a probe takes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use netlink::PacketTap;
use nettest::probe::{Failure, Flow, TapCount, Taps};

use super::packet::{Direction, Headers};

/// The longest wait for a packet, after which the stop flag is read.
const WAIT: Duration = Duration::from_millis(20);
/// How long answers that arrived with the last packet may take to be seen.
const LINGER: Duration = Duration::from_millis(60);
/// The most packets of all flows of the two addresses that it reads: hosts that are this busy are not slowed down by a tap.
const MAX_PACKETS: u64 = 2_000_000;

pub(super) struct FlowTap {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<(TapCounts, Option<Failure>)>>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct TapCounts {
    /// Packets by direction of the flow and of the link.
    forward_out: Count,
    forward_in: Count,
    backward_out: Count,
    backward_in: Count,
    incomplete: bool,
}

/// Packets by link. A VLAN's packets are seen on its parent, too: the most of one link is the number.
#[derive(Clone, Debug, Default)]
struct Count {
    by_link: BTreeMap<u32, u32>,
    first: Option<u32>,
    last: Option<u32>,
}

impl FlowTap {
    /// Opens the tap in the calling thread's namespace and starts to count. Without a tap nothing is known.
    pub(super) fn start(flow: Flow) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = PacketTap::open(flow.source, flow.target).ok().and_then(|tap| {
            let named = std::thread::Builder::new().name("flow-tap".to_owned());
            named.spawn(move || count(tap, &flow, &stopped)).ok()
        });
        Self { stop, thread }
    }

    /// What it saw, and the last ICMP error about the flow.
    pub(super) fn stop(self) -> (TapCounts, Option<Failure>) {
        let unknown = || (TapCounts { incomplete: true, ..TapCounts::default() }, None);
        let Some(thread) = self.thread else { return unknown() };
        std::thread::sleep(LINGER);
        self.stop.store(true, Ordering::Relaxed);
        thread.join().unwrap_or_else(|_| unknown())
    }
}

fn count(mut tap: PacketTap, flow: &Flow, stopped: &AtomicBool) -> (TapCounts, Option<Failure>) {
    let (mut seen, mut error, mut packets) = (TapCounts::default(), None, 0_u64);
    while !stopped.load(Ordering::Relaxed) {
        let packet = match tap.next(WAIT) {
            Ok(Some(packet)) => packet,
            Ok(None) => continue,
            Err(_) => {
                seen.incomplete = true;
                break;
            }
        };
        packets += 1;
        if packets > MAX_PACKETS {
            seen.incomplete = true;
            break;
        }
        let Some(headers) = Headers::read(packet.bytes) else { continue };
        match (headers.direction(flow), packet.outgoing) {
            (Some(Direction::Forward), true) => seen.forward_out.add(packet.index),
            (Some(Direction::Forward), false) => seen.forward_in.add(packet.index),
            (Some(Direction::Backward), true) => seen.backward_out.add(packet.index),
            (Some(Direction::Backward), false) => seen.backward_in.add(packet.index),
            // An error that this host sends itself comes in by its loopback link.
            (None, false) => error = headers.error_about(flow).or(error),
            (None, true) => {}
        }
    }
    seen.incomplete |= tap.has_lost().unwrap_or(true);
    (seen, error)
}

impl Count {
    fn add(&mut self, index: u32) {
        *self.by_link.entry(index).or_default() += 1;
        self.first.get_or_insert(index);
        self.last = Some(index);
    }

    fn packets(&self) -> u32 {
        self.by_link.values().copied().max().unwrap_or_default()
    }
}

impl TapCounts {
    /// As the flow's source reports it.
    pub(super) fn of_source(&self) -> Taps {
        self.taps(&self.forward_out, &self.backward_in)
    }

    /// As the flow's target reports it.
    pub(super) fn of_target(&self) -> Taps {
        self.taps(&self.backward_out, &self.forward_in)
    }

    /// Outgoing packets are seen on the VLAN's link first, incoming ones last.
    fn taps(&self, out: &Count, inward: &Count) -> Taps {
        let links = netlink::Socket::open().and_then(|mut kernel| kernel.links()).unwrap_or_default();
        let name = |index: Option<u32>| {
            let link = links.iter().find(|link| Some(link.index) == index);
            link.map(|link| link.name.to_string()).unwrap_or_default()
        };
        let tap = |count: &Count, index| TapCount { packets: count.packets(), device: name(index) };
        Taps { out: tap(out, out.first), inward: tap(inward, inward.last), incomplete: self.incomplete }
    }
}
