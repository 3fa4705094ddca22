//! Sends the probes of one task, and reports what this host shows before and after.

use api::TargetService;
use nettest::probe::{Failure, Flow, ProbeKind, ProbeReport, ProbeTarget, SendTask, Tally, Taps, Transport};

use super::flow_tap::FlowTap;
use super::socket::ProbeRoute;
use super::target::Destination;
use super::{ProbeEnvironment, TaskError, dns, empty, host_state, http, icmp, tcp, throughput, udp};

/// Sends, and waits for the last answer.
pub(super) fn send(task: &SendTask, surroundings: &ProbeEnvironment) -> Result<ProbeReport, TaskError> {
    let prepare = |error: netlink::Error| TaskError::Prepare(error.to_string());
    let destination = match Destination::of(task, surroundings) {
        Err(TaskError::Resolve { name, cause }) if matches!(task.target, ProbeTarget::Host(_)) => {
            let failure = Some(Failure::Unresolved(format!("{name}: {cause}")));
            let tally = Tally { sent: task.count.into(), failure, ..Tally::default() };
            let taps = Taps { incomplete: true, ..Taps::default() };
            return Ok(ProbeReport { tally, taps, ..empty() });
        }
        destination => destination?,
    };
    let way = ProbeRoute::find(task, destination.address).map_err(prepare)?;
    let report = ProbeReport {
        source: way.source,
        target: Some(way.target.ip()),
        subnet: way.subnet,
        link_subnets: way.link_subnets.clone(),
        route: Some(way.route.clone()),
        ..empty()
    };
    let Some(protocol) = Transport::of(task.kind) else { return Ok(report) };
    // DNS over TCP is of another protocol than its kind.
    let protocol = if task.over_tcp { Transport::Tcp } else { protocol };
    let port = if protocol == Transport::Icmp { 0 } else { way.target.port() };
    let state = || host_state::read(&surroundings.proc, &way.route.expected, way.family());
    let before = state();
    // A tap would copy each packet, and slow down what is measured.
    let tap = way.source.filter(|_| task.kind != ProbeKind::Throughput).map(|source| {
        let source_port = task.source_port;
        FlowTap::start(Flow { protocol, source, target: way.target.ip(), source_port, port })
    });
    let mut tally = match task.kind {
        ProbeKind::Icmp | ProbeKind::PathMtu => icmp::probe(&way, task),
        ProbeKind::Tcp => tcp::probe(&way, task),
        ProbeKind::Udp => udp::probe(&way, task),
        ProbeKind::Http | ProbeKind::Https => http::probe(&way, task, &destination),
        ProbeKind::Dns => dns::probe(&way, task),
        ProbeKind::Throughput => throughput::probe(&way, task),
        ProbeKind::Route => Tally::default(),
    };
    let mut taps = Taps { incomplete: true, ..Taps::default() };
    if let Some(tap) = tap {
        let (seen, error) = tap.stop();
        taps = seen.of_source();
        // A Service's address: the host replaces it before the packet is seen.
        taps.incomplete |= task.target == ProbeTarget::Service(TargetService::ApiServer);
        explain(&mut tally, error);
    }
    if tally.failure == Some(Failure::Local("EMSGSIZE".to_owned())) {
        tally.failure = Some(Failure::TooBig { mtu: way.mtu, from: None });
    }
    Ok(ProbeReport { tally, taps, before, after: state(), ..report })
}

/// An ICMP error says more than the silence, or the error number, that it caused.
fn explain(tally: &mut Tally, error: Option<Failure>) {
    let vague = matches!(tally.failure, Some(Failure::Silence | Failure::Local(_) | Failure::Unreachable(_)));
    if let Some(error) = error.filter(|_| vague) {
        tally.failure = Some(error);
    }
}
