//! Which probes to try with one thing changed: those that separate the causes that are left, at most one round of each.

use std::net::IpAddr;

use api::TargetService;

use crate::case::{AgentRequest, Case, Compared, Role};
use crate::diagnose::{avoiding, is_misrouted};
use crate::probe::{Change, Evidence, Flow, ProbeKind, ProbeTarget, SendTask, Task};

/// A port on which nothing usually listens, so that a host that is reached refuses the connection.
const CLOSED_PORT: u16 = 9;
/// The port of the kubelet, which every node has open to the control plane.
const KUBELET_PORT: u16 = 10250;
/// A packet that every path carries: the least MTU of IPv4 hosts.
const SMALL: u16 = 576;
/// Requests of a slow probe, and milliseconds between two.
const SLOW_COUNT: u8 = 3;
const SLOW_INTERVAL_MS: u16 = 1_000;
/// Nodes of the source's subnet that must agree.
const NEIGHBOURS: u8 = 3;

/// The rounds, each to be sent at once.
pub(crate) fn rounds(case: &Case, evidence: &Evidence) -> Vec<Vec<AgentRequest>> {
    let avoiding = avoiding(evidence);
    let mut rounds = vec![of_the_source(case, evidence, avoiding.is_some())];
    if case.send.kind != ProbeKind::Throughput {
        rounds.push(of_other_nodes(case, evidence));
        rounds.extend(of_the_target(case, evidence));
    }
    // Throughput has no trial that avoids a host's fault.
    if let Some(mut changes) = avoiding.filter(|_| case.send.kind != ProbeKind::Throughput) {
        // One trial each.
        let mut is_kept = |request: &AgentRequest| request.change().is_some_and(|change| changes.remove(&change));
        rounds.iter_mut().for_each(|round| round.retain(&mut is_kept));
    }
    rounds.retain(|round| !round.is_empty());
    rounds
}

/// The same source with another port, protocol, size, rate, address or target.
fn of_the_source(case: &Case, evidence: &Evidence, is_traced: bool) -> Vec<AgentRequest> {
    let source = case.source.node.as_deref();
    let trial = |change, send: SendTask| case.request(source, Task::Send(send), Role::Trial(change));
    let base = || case.sent_elsewhere();
    let mut requests = Vec::new();
    match case.send.kind {
        ProbeKind::Throughput => {
            let target = evidence.target.address.or(evidence.attempt.target);
            let echo = |to, size| SendTask { kind: ProbeKind::PathMtu, size, ..case.echo(to) };
            requests.extend(target.map(|to| trial(Change::FullSize, echo(to, 0))));
            requests.extend(target.map(|to| trial(Change::SmallPacket, echo(to, SMALL))));
            return requests;
        }
        ProbeKind::PathMtu => requests.push(trial(Change::SmallPacket, SendTask { size: SMALL, ..case.send.clone() })),
        ProbeKind::Dns => {
            let slow = SendTask { count: SLOW_COUNT, interval_ms: SLOW_INTERVAL_MS, ..base() };
            requests.push(trial(Change::SlowRate, slow));
            requests.push(trial(Change::OverTcp, SendTask { over_tcp: true, count: 1, ..base() }));
        }
        ProbeKind::Tcp | ProbeKind::Http | ProbeKind::Https | ProbeKind::Udp | ProbeKind::Icmp
            if case.service.is_none() =>
        {
            let other = if case.send.port == CLOSED_PORT { KUBELET_PORT } else { CLOSED_PORT };
            let tcp = SendTask { kind: ProbeKind::Tcp, port: other, path: None, size: 0, count: 2, ..base() };
            let source = case.send.source;
            let tcp = SendTask { source, ..tcp };
            if case.send.kind == ProbeKind::Icmp || case.send.kind == ProbeKind::Udp {
                requests.push(trial(Change::OtherProtocol, tcp));
            } else {
                requests.push(trial(Change::OtherPort, tcp));
                let target = evidence.target.address.or(evidence.attempt.target);
                requests.extend(target.map(|to| trial(Change::OtherProtocol, SendTask { source, ..case.echo(to) })));
            }
        }
        _ => {}
    }
    // A wrong lookup is compared with a lookup: what else is wrong on the path does not matter.
    let is_misrouted_lookup = evidence.attempt.route.as_ref().is_some_and(is_misrouted);
    let compared =
        |send: SendTask| if is_misrouted_lookup { SendTask { kind: ProbeKind::Route, ..send } } else { send };
    let fits = is_traced || case.send.kind != ProbeKind::PathMtu;
    if case.send.source.is_some() && fits {
        requests.push(trial(Change::OwnAddress, compared(base())));
    }
    // Another network, if the target's is known: that of the target may have no route.
    let elsewhere = case.others.iter().filter(|other| in_targets_subnet(evidence, other) != Some(true));
    let elsewhere = elsewhere.filter(|_| case.service.is_none() && fits);
    let other = elsewhere.filter_map(|other| other.of_family(evidence.attempt.source)).next();
    // Routes carry echo requests whatever the rules are; what a host drops is the probe itself.
    let to = |to| match is_traced {
        true => compared(SendTask { target: ProbeTarget::Address(to), ..base() }),
        false => case.echo(to),
    };
    requests.extend(other.map(|other| trial(Change::OtherTarget, SendTask { source: case.send.source, ..to(other) })));
    requests
}

/// The same probe from other nodes: some of the source's subnet, which the target's agent watches, one of the target's, one of a third.
fn of_other_nodes(case: &Case, evidence: &Evidence) -> Vec<AgentRequest> {
    if case.send.kind == ProbeKind::PathMtu || case.service == Some(TargetService::Gateway) {
        return Vec::new();
    }
    let others = || case.others.iter();
    let request = |other: &Compared, role| case.request(Some(&other.node), Task::Send(case.sent_elsewhere()), role);
    let trial = |other: &Compared, change| request(other, Role::Trial(change));
    if case.service.is_some() {
        return others().next().map(|other| trial(other, Change::OtherNode)).into_iter().collect();
    }
    let in_sources = |other: &Compared| other.shares_subnet(&evidence.attempt);
    let in_targets = |other: &Compared| in_targets_subnet(evidence, other);
    let flow = case.flow(evidence).filter(|_| case.target_has_agent);
    let mut requests = Vec::new();
    for (neighbour, number) in others().filter(|other| in_sources(other) == Some(true)).zip(0..NEIGHBOURS) {
        requests.push(request(neighbour, Role::Neighbour(number)).watched());
        let watch = flow.and_then(|flow| {
            let flow = Flow { source: neighbour.of_family(Some(flow.target))?, source_port: 0, ..flow };
            Some(case.watch(&case.target, flow, case.send.longest_ms(), Role::NeighbourArrival(number)))
        });
        requests.extend(watch);
    }
    let near_target = others().find(|other| in_targets(other) == Some(true) && in_sources(other) != Some(true));
    requests.extend(near_target.map(|other| trial(other, Change::TargetNeighbour)));
    let stranger = others().find(|other| in_sources(other) == Some(false) && in_targets(other) != Some(true));
    requests.extend(stranger.map(|other| trial(other, Change::OtherSubnet)));
    requests
}

/// Whether a node is in the target's subnet. `None` if the target's agent did not report it.
fn in_targets_subnet(evidence: &Evidence, other: &Compared) -> Option<bool> {
    other.shares_subnet(evidence.arrival.as_ref()?)
}

/// The target sends: a packet of the flow in the other direction first, or by the link of the request.
fn of_the_target(case: &Case, evidence: &Evidence) -> Vec<Vec<AgentRequest>> {
    let mut rounds = Vec::new();
    if !case.target_has_agent {
        return rounds;
    }
    let agent = case.target.node.as_deref();
    let source: Option<IpAddr> = evidence.attempt.source;
    let arrival = evidence.arrival.as_ref();
    let differ = arrival
        .is_some_and(|report| report.taps.out.packets > 0 && report.taps.out.device != report.taps.inward.device);
    if let (true, Some(source)) = (differ, source) {
        let forced = SendTask { force_link: true, source: evidence.target.address, ..case.echo(source) };
        rounds.push(vec![case.request(agent, Task::Send(forced), Role::Trial(Change::ForcedLink))]);
    }
    let never_arrived = arrival.is_some_and(|report| report.taps.inward.packets == 0);
    let has_ports = matches!(case.send.kind, ProbeKind::Tcp | ProbeKind::Udp | ProbeKind::Http | ProbeKind::Https);
    if let (true, true, Some(flow)) = (never_arrived, has_ports && case.send.source_port != 0, case.flow(evidence)) {
        let (source, target, source_port, port) = (flow.target, flow.source, flow.port, flow.source_port);
        let back = Flow { source, target, source_port, port, ..flow };
        let open = case.request(agent, Task::Open(flow), Role::Preparation).watched();
        rounds.push(vec![case.watch(&case.source, back, 0, Role::FromTarget), open]);
        let send = SendTask { target: ProbeTarget::Address(flow.target), count: 2, ..case.send.clone() };
        let source = case.source.node.as_deref();
        rounds.push(vec![case.request(source, Task::Send(send), Role::Trial(Change::OpenedByTarget))]);
    }
    rounds
}

#[cfg(test)]
mod tests;
