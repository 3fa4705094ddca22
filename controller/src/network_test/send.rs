//! The task of one probe: its defaults, and the bounds of agents. Pure.

use std::net::IpAddr;

use api::TestProbe;
use nettest::probe::{ProbeKind, ProbeTarget, SendTask, THROUGHPUT_PORT, bounds};

const COUNT: u8 = 5;
const RATE: u8 = 20;
/// Megabits per second of a probe of throughput.
const MBITS: u16 = 100;
const TIMEOUT_MS: u32 = 1_000;
/// The most connections of a probe, which are made one after the other.
const CONNECTIONS: u8 = 20;
/// The longest time from the first packet to the last.
const SENDING_MS: u16 = 5_000;
/// The first of the probes' ports, above those of servers, and how many there are.
pub(super) const FIRST_PORT: u16 = 20_000;
const PORTS: u16 = 20_000;

/// What the source's agent sends: within the bounds that the agent has, too. The pair's number in the run chooses the source port.
pub(super) fn send(probe: &TestProbe, target: ProbeTarget, source: Option<IpAddr>, number: usize) -> SendTask {
    // The API server enforces these bounds; an object from before them must not exceed the agent's.
    let connects = matches!(probe.kind, ProbeKind::Tcp | ProbeKind::Http | ProbeKind::Https);
    let most = if connects { CONNECTIONS } else { bounds::COUNT_MAX };
    let count = probe.count.unwrap_or(COUNT).clamp(1, most);
    let slowest = SENDING_MS / u16::from(count);
    let interval_ms = (1_000 / u16::from(probe.rate.unwrap_or(RATE).max(1))).clamp(bounds::INTERVAL_MIN_MS, slowest);
    let waits = if connects { u32::from(count) } else { 1 };
    // Half of the longest task, so that the target's agent can watch all of it.
    let left = (bounds::TASK_MAX_MS / 2).saturating_sub(u32::from(SENDING_MS));
    let timeout_ms = u16::try_from((left / waits).min(TIMEOUT_MS)).unwrap_or(1);
    let source_port = FIRST_PORT + u16::try_from(number % usize::from(PORTS)).unwrap_or(0);
    SendTask {
        kind: probe.kind,
        source,
        target,
        port: probe.port.unwrap_or(match probe.kind {
            ProbeKind::Http => 80,
            ProbeKind::Https => 443,
            ProbeKind::Throughput => THROUGHPUT_PORT,
            _ => 0,
        }),
        source_port,
        count,
        interval_ms,
        timeout_ms: timeout_ms.max(1),
        size: 0,
        force_link: false,
        name: probe.name.clone(),
        path: probe.path.clone(),
        over_tcp: false,
        mbits: (probe.kind == ProbeKind::Throughput)
            .then(|| probe.megabits_per_second.unwrap_or(MBITS).clamp(1, bounds::MBITS_MAX)),
    }
}
