//! Whether the node can be reached: full-size packets to the gateway and to the leader, whose answers show both directions, and
//! requests to the metadata service and the API server. Those that pass before a change must pass after it.

use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use api::TargetService;
use nettest::probe::{Failure, ProbeKind, ProbeRequest, ProbeTarget, SendTask, Task, bounds};

use crate::probes::{ProbeEnvironment, perform};

/// Packets of one attempt, and the time for each.
const COUNT: u8 = 3;
const INTERVAL_MS: u16 = 200;
const TIMEOUT_MS: u16 = 1_500;

/// How long a link may take until packets pass again: a driver resets its device for some options, and the switch learns its address again.
const SETTLE: Duration = Duration::from_secs(25);
const PAUSE: Duration = Duration::from_millis(500);

/// Bytes of a packet that links take as long as no larger MTU is set.
const ETHERNET: u16 = 1_500;

/// A path that must stay open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Probe {
    pub(super) kind: ProbeKind,
    pub(super) target: ProbeTarget,
    /// Bytes of a packet that must not be fragmented; 0 for the least.
    pub(super) size: u16,
}

/// The probes that pass with an MTU. A peer may have a smaller one: then the largest packets are Ethernet's, or any.
pub(super) fn passing(environment: &ProbeEnvironment, leader: Option<IpAddr>, mtu: u32) -> Vec<Probe> {
    let full = u16::try_from(mtu).unwrap_or(u16::MAX).min(bounds::SIZE_MAX);
    let echo = |target: ProbeTarget| Probe { kind: ProbeKind::PathMtu, target, size: full };
    let request = |kind, service| Probe { kind, target: ProbeTarget::Service(service), size: 0 };
    let mut candidates = vec![
        echo(ProbeTarget::Service(TargetService::Gateway)),
        request(ProbeKind::Http, TargetService::Imds),
        request(ProbeKind::Https, TargetService::ApiServer),
    ];
    candidates.extend(leader.map(|address| echo(ProbeTarget::Address(address))));
    at_once(candidates, |probe| {
        let mut smaller = Vec::new();
        if probe.kind == ProbeKind::PathMtu {
            smaller.extend((ETHERNET < full).then(|| Probe { size: ETHERNET, ..probe.clone() }));
            smaller.push(Probe { kind: ProbeKind::Icmp, size: 0, ..probe.clone() });
        }
        [probe].into_iter().chain(smaller).find(|probe| passes(environment, probe))
    })
}

/// The probes with an MTU that was raised. Peers that answer packets of the new size must do so from now on; others may have a
/// smaller MTU, because a rollout raises it node by node.
pub(super) fn raised(environment: &ProbeEnvironment, probes: Vec<Probe>, mtu: u32) -> Vec<Probe> {
    let full = u16::try_from(mtu).unwrap_or(u16::MAX).min(bounds::SIZE_MAX);
    at_once(probes, |probe| {
        let larger = Probe { size: full, ..probe.clone() };
        let is_raised = probe.kind == ProbeKind::PathMtu && probe.size < full && passes(environment, &larger);
        Some(if is_raised { larger } else { probe })
    })
}

impl Probe {
    /// Whether the target is one that every node has at its VNIC. Another one may be down by itself.
    pub(super) fn is_local(&self) -> bool {
        matches!(&self.target, ProbeTarget::Service(TargetService::Gateway | TargetService::Imds))
    }
}

/// The first of the probes that is lost with a new MTU, once the link had time to settle.
pub(super) fn lost(
    environment: &ProbeEnvironment,
    probes: &[Probe],
    mtu: u32,
    is_stopped: impl Fn() -> bool,
) -> Option<String> {
    let begun = Instant::now();
    loop {
        let lost = lost_now(environment, probes, mtu)?;
        if begun.elapsed() > SETTLE || is_stopped() {
            return Some(lost);
        }
        thread::sleep(PAUSE);
    }
}

/// The same without time to settle.
pub(super) fn lost_now(environment: &ProbeEnvironment, probes: &[Probe], mtu: u32) -> Option<String> {
    let size = u16::try_from(mtu).unwrap_or(u16::MAX);
    let resized = probes.iter().map(|it| Probe { size: it.size.min(size), ..it.clone() }).collect();
    at_once(resized, |probe| (!passes(environment, &probe)).then(|| describe(&probe))).into_iter().next()
}

/// A probe of the leader with large packets.
pub(super) const fn large(leader: IpAddr, size: u16) -> Probe {
    Probe { kind: ProbeKind::PathMtu, target: ProbeTarget::Address(leader), size }
}

/// Whether large packets are lost although small ones pass.
pub(super) fn lost_large(
    environment: &ProbeEnvironment,
    probe: Probe,
    is_stopped: impl Fn() -> bool,
) -> Option<String> {
    let small = Probe { kind: ProbeKind::Icmp, size: 0, ..probe.clone() };
    let mtu = probe.size.into();
    if passes(environment, &small) { lost(environment, &[probe], mtu, is_stopped) } else { None }
}

fn describe(probe: &Probe) -> String {
    let target = target_of(probe);
    match probe.size {
        0 => format!("{target} no longer answers"),
        size => format!("{target} no longer answers packets of {size} bytes"),
    }
}

/// What answers, with the bytes of its packets: `the gateway (9000)`.
pub(super) fn list(probes: &[Probe]) -> String {
    let text = |probe: &Probe| match probe.size {
        0 => target_of(probe),
        size => format!("{} ({size})", target_of(probe)),
    };
    probes.iter().map(text).collect::<Vec<_>>().join(", ")
}

fn target_of(probe: &Probe) -> String {
    match &probe.target {
        ProbeTarget::Service(TargetService::Gateway) => "the gateway".to_owned(),
        ProbeTarget::Service(TargetService::Imds) => "the metadata service".to_owned(),
        ProbeTarget::Service(_) => "the API server".to_owned(),
        ProbeTarget::Address(address) => format!("the leader {address}"),
        ProbeTarget::Host(host) => host.clone(),
    }
}

fn passes(environment: &ProbeEnvironment, probe: &Probe) -> bool {
    let task = SendTask {
        kind: probe.kind,
        source: None,
        target: probe.target.clone(),
        port: 0,
        source_port: 0,
        count: if matches!(probe.kind, ProbeKind::PathMtu | ProbeKind::Icmp) { COUNT } else { 1 },
        interval_ms: INTERVAL_MS,
        timeout_ms: TIMEOUT_MS,
        size: probe.size,
        force_link: false,
        name: None,
        path: None,
        over_tcp: false,
        mbits: None,
    };
    match perform(&ProbeRequest::new(Task::Send(task)), environment) {
        // Any answer proves the path, including a refusal of the request.
        Ok(report) => report.tally.received > 0 || matches!(report.tally.failure, Some(Failure::Status(_))),
        Err(_) => false,
    }
}

/// Works on all at the same time: each waits for seconds.
fn at_once<R: Send>(probes: Vec<Probe>, work: impl Fn(Probe) -> Option<R> + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let running: Vec<_> = probes.into_iter().map(|probe| scope.spawn(|| work(probe))).collect();
        running.into_iter().filter_map(|thread| thread.join().ok().flatten()).collect()
    })
}
