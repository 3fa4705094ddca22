//! Which probes to try with one thing changed: those that separate the causes that are left, at most one round of each.

use std::net::IpAddr;

use api::TargetService;
use api::probe::{Change, Evidence, Flow, Party, ProbeKind, ProbeTarget, SendTask, Task};

use crate::diagnose::shares_subnet;
use crate::investigation::{Ask, Case, Role};

/// A port on which nothing usually listens, so that a host that is reached refuses the connection.
const CLOSED_PORT: u16 = 9;
/// The port of the kubelet, which every node has open to the control plane.
const KUBELET_PORT: u16 = 10250;
/// A packet that every path carries: the least MTU of IPv4 hosts.
const SMALL: u16 = 576;
/// Requests of a slow probe, and milliseconds between two.
const SLOW_COUNT: u8 = 3;
const SLOW_INTERVAL_MS: u16 = 1_000;

/// The rounds, each to be sent at once.
pub(crate) fn rounds(case: &Case, evidence: &Evidence) -> Vec<Vec<Ask>> {
    let mut rounds: Vec<Vec<Ask>> = Vec::new();
    rounds.push(of_the_source(case, evidence));
    if case.send.kind == ProbeKind::Throughput {
        return rounds;
    }
    rounds.push(of_other_nodes(case, evidence));
    rounds.extend(of_the_target(case, evidence));
    rounds.retain(|round| !round.is_empty());
    rounds
}

/// The same source with another port, protocol, size, rate or address.
fn of_the_source(case: &Case, evidence: &Evidence) -> Vec<Ask> {
    let trial = |change, send: SendTask| case.ask(&case.source, Task::Send(send), Role::Trial(change));
    let base = || case.sent_elsewhere();
    let mut asks = Vec::new();
    match case.send.kind {
        ProbeKind::Throughput => {
            let target = evidence.target.address.or(evidence.attempt.target);
            let echo = |to, size| SendTask { kind: ProbeKind::PathMtu, size, ..case.echo(to) };
            asks.extend(target.map(|to| trial(Change::FullSize, echo(to, 0))));
            asks.extend(target.map(|to| trial(Change::SmallPacket, echo(to, SMALL))));
            return asks;
        }
        ProbeKind::PathMtu => asks.push(trial(Change::SmallPacket, SendTask { size: SMALL, ..case.send.clone() })),
        ProbeKind::Dns => {
            let slow = SendTask { count: SLOW_COUNT, interval_ms: SLOW_INTERVAL_MS, ..base() };
            asks.push(trial(Change::SlowRate, slow));
            asks.push(trial(Change::OverTcp, SendTask { over_tcp: true, count: 1, ..base() }));
        }
        ProbeKind::Tcp | ProbeKind::Http | ProbeKind::Https | ProbeKind::Udp | ProbeKind::Icmp
            if case.service.is_none() =>
        {
            let other = if case.send.port == CLOSED_PORT { KUBELET_PORT } else { CLOSED_PORT };
            let tcp = SendTask { kind: ProbeKind::Tcp, port: other, path: None, size: 0, count: 2, ..base() };
            let source = case.send.source;
            let tcp = SendTask { source, ..tcp };
            if case.send.kind == ProbeKind::Icmp || case.send.kind == ProbeKind::Udp {
                asks.push(trial(Change::OtherProtocol, tcp));
            } else {
                asks.push(trial(Change::OtherPort, tcp));
                let target = evidence.target.address.or(evidence.attempt.target);
                asks.extend(target.map(|to| trial(Change::OtherProtocol, SendTask { source, ..case.echo(to) })));
            }
        }
        _ => {}
    }
    if case.send.source.is_some() && case.send.kind != ProbeKind::PathMtu {
        asks.push(trial(Change::OwnAddress, base()));
    }
    // Another network, if the target's is known: that of the target may have no route.
    let is_elsewhere =
        |other: &&Party| other.node != case.target.node && in_targets_subnet(evidence, other) != Some(true);
    let elsewhere = case.others.iter().find(is_elsewhere).and_then(|other| other.address);
    // The address by which another node is compared can be of the other family.
    let is_family = |to: &IpAddr| evidence.attempt.source.is_none_or(|source| source.is_ipv4() == to.is_ipv4());
    let elsewhere =
        elsewhere.filter(is_family).filter(|_| case.service.is_none() && case.send.kind != ProbeKind::PathMtu);
    asks.extend(elsewhere.map(|to| trial(Change::OtherTarget, SendTask { source: case.send.source, ..case.echo(to) })));
    asks
}

/// The same probe from other nodes: one of the source's subnet, which the target's agent watches, one of the target's, one of a third.
fn of_other_nodes(case: &Case, evidence: &Evidence) -> Vec<Ask> {
    if case.send.kind == ProbeKind::PathMtu || case.service == Some(TargetService::Gateway) {
        return Vec::new();
    }
    let usable = |other: &&Party| other.node != case.target.node && other.node != case.source.node;
    let others = || case.others.iter().filter(usable);
    let ask = |other: &Party, change| case.ask(other, Task::Send(case.sent_elsewhere()), Role::Trial(change));
    if case.service.is_some() {
        return others().next().map(|other| ask(other, Change::OtherNode)).into_iter().collect();
    }
    let in_sources = |other: &Party| other.address.and_then(|address| shares_subnet(&evidence.attempt, address));
    let in_targets = |other: &Party| in_targets_subnet(evidence, other);
    let mut asks = Vec::new();
    if let Some(neighbour) = others().find(|other| in_sources(other) == Some(true)) {
        asks.push(ask(neighbour, Change::SubnetNeighbour).watched());
        let of_family = |flow: &Flow| neighbour.address.filter(|address| address.is_ipv4() == flow.target.is_ipv4());
        let flow = case.flow(evidence).filter(|_| case.target_has_agent);
        if let Some((flow, source)) = flow.and_then(|flow| Some((flow, of_family(&flow)?))) {
            let flow = Flow { source, source_port: 0, ..flow };
            let role = Role::TrialArrival(Change::SubnetNeighbour);
            asks.push(case.watch(&case.target, (flow, case.send.longest_ms()), role));
        }
    }
    let near_target = others().find(|other| in_targets(other) == Some(true) && in_sources(other) != Some(true));
    asks.extend(near_target.map(|other| ask(other, Change::TargetNeighbour)));
    let stranger = others().find(|other| in_sources(other) == Some(false) && in_targets(other) != Some(true));
    asks.extend(stranger.map(|other| ask(other, Change::OtherSubnet)));
    asks
}

/// Whether a node is in the target's subnet. `None` if the target's agent did not report it.
fn in_targets_subnet(evidence: &Evidence, other: &Party) -> Option<bool> {
    shares_subnet(evidence.arrival.as_ref()?, other.address?)
}

/// The target sends: a packet of the flow in the other direction first, or by the link of the request.
fn of_the_target(case: &Case, evidence: &Evidence) -> Vec<Vec<Ask>> {
    let mut rounds = Vec::new();
    if !case.target_has_agent {
        return rounds;
    }
    let source: Option<IpAddr> = evidence.attempt.source;
    let arrival = evidence.arrival.as_ref();
    let differ = arrival
        .is_some_and(|report| report.taps.out.packets > 0 && report.taps.out.device != report.taps.inward.device);
    if let (true, Some(source)) = (differ, source) {
        let forced = SendTask { force_link: true, source: evidence.target.address, ..case.echo(source) };
        rounds.push(vec![case.ask(&case.target, Task::Send(forced), Role::Trial(Change::ForcedLink))]);
    }
    let never_arrived = arrival.is_some_and(|report| report.taps.inward.packets == 0);
    let has_ports = matches!(case.send.kind, ProbeKind::Tcp | ProbeKind::Udp | ProbeKind::Http | ProbeKind::Https);
    if let (true, true, Some(flow)) = (never_arrived, has_ports && case.send.source_port != 0, case.flow(evidence)) {
        let (source, target, source_port, port) = (flow.target, flow.source, flow.port, flow.source_port);
        let back = Flow { source, target, source_port, port, ..flow };
        let open = case.ask(&case.target, Task::Open(flow), Role::Preparation).watched();
        rounds.push(vec![case.watch(&case.source, (back, 0), Role::FromTarget), open]);
        let send = SendTask { target: ProbeTarget::Address(flow.target), count: 2, ..case.send.clone() };
        rounds.push(vec![case.ask(&case.source, Task::Send(send), Role::Trial(Change::OpenedByTarget))]);
    }
    rounds
}
