//! Rows of the network between the hosts: no counter shows them, so they differ by what passes and what does not.

use std::collections::BTreeSet;

use api::TargetService;

use super::{Finding, Strength, has_ports, is_link_local, is_same_subnet};
use crate::cause::{Cause, Place};
use crate::probe::{Change, Evidence, Failure, ProbeKind, Tally, Trial};
use crate::tap::Tap;

/// Fewer tracked connections on the host than this do not fill a VNIC's table: the smallest shape tracks 15,000.
const VNIC_CONNECTIONS: u64 = 10_000;

/// Full-size packets are lost, small ones pass.
pub(super) fn path_mtu(evidence: &Evidence) -> Option<Finding> {
    let small = evidence.reaches(Change::SmallPacket) == Some(true);
    let is_host = matches!(evidence.attempt.tally.failure, Some(Failure::TooBig { from: None, .. }));
    let found = Finding::new(Cause::PathMtu, Strength::Proven);
    let found = if is_host { found.at(Place::SourceHost) } else { found };
    (evidence.kind == ProbeKind::PathMtu && small).then_some(found)
}

/// Data passes, slowly, and full-size packets are not what is lost.
pub(super) fn bandwidth(evidence: &Evidence) -> Option<Finding> {
    let small_passes = evidence.reaches(Change::SmallPacket) == Some(true);
    (is_slow(evidence) && !(full_size_vanishes(evidence) && small_passes))
        .then(|| Finding::new(Cause::Bandwidth, Strength::Likely))
}

/// Data passes slowly, or not at all after the connection, and full-size packets vanish. A router that reports the MTU slows down
/// nothing.
pub(super) fn large_packets(evidence: &Evidence) -> Option<Finding> {
    (is_slow(evidence) && full_size_vanishes(evidence)).then(|| Finding::new(Cause::PathMtu, Strength::Likely))
}

fn full_size_vanishes(evidence: &Evidence) -> bool {
    evidence.trial(Change::FullSize).is_none_or(|full| full.fails() && full.failure == Some(Failure::Silence))
}

fn is_slow(evidence: &Evidence) -> bool {
    matches!(evidence.attempt.tally.failure, Some(Failure::Slow { .. }))
}

/// What is left when some of the same packets pass.
pub(super) fn partial_loss() -> Vec<Finding> {
    possible(&[Cause::Intermittent, Cause::VnicConntrack])
}

/// What is left when no host and no service shows a trace: security rules, routes, the VNIC itself.
pub(super) fn rules_and_routes(evidence: &Evidence) -> Vec<Finding> {
    if is_link_local(evidence) {
        return services_of_the_link(evidence);
    }
    match Tap::last(evidence) {
        Some(Tap::SourceRoute) => possible(&[Cause::HostFirewall, Cause::HostRoute]),
        // Anything that can lose packets without a trace.
        None => {
            let mut all = possible(&[Cause::SecurityList, Cause::SecurityGroup, Cause::HostFirewall]);
            all.extend(if is_same_subnet(evidence) {
                Vec::new()
            } else {
                possible(&[Cause::RouteTable, Cause::Gateway])
            });
            all
        }
        Some(Tap::SourceIn) => vec![Finding::new(Cause::HostFirewall, Strength::Likely)],
        Some(Tap::TargetIn) => {
            vec![Finding::new(Cause::HostFirewall, Strength::Likely).at(Place::TargetHost)]
        }
        Some(Tap::SourceOut | Tap::TargetOut) => between_hosts(evidence),
    }
}

/// The same of a service that no rule and no route of the network hides.
fn services_of_the_link(evidence: &Evidence) -> Vec<Finding> {
    match Tap::last(evidence) {
        Some(Tap::SourceRoute) => possible(&[Cause::HostFirewall, Cause::HostRoute]),
        Some(Tap::SourceIn) => vec![Finding::new(Cause::HostFirewall, Strength::Likely)],
        // Its packets left the host.
        Some(_) => vec![Finding::new(Cause::ServiceSilent, Strength::Likely)],
        None => possible(&[Cause::ServiceSilent, Cause::HostFirewall]),
    }
}

fn between_hosts(evidence: &Evidence) -> Vec<Finding> {
    let reaches = |change| evidence.reaches(change);
    let others = [reaches(Change::OtherPort), reaches(Change::OtherProtocol)];
    let opened = reaches(Change::OpenedByTarget) == Some(true);
    let selective = others.contains(&Some(true)) || opened;
    if selective {
        return security_rules(evidence);
    }
    let everything_lost = others.contains(&Some(false));
    let hidden = if evidence.arrival.is_none() && evidence.target.node.is_some() {
        possible(&[Cause::TargetDown, Cause::HostFirewall])
    } else {
        Vec::new()
    };
    let found = if everything_lost || !has_ports(evidence) { routes(evidence) } else { Vec::new() };
    if found.is_empty() {
        let mut all = possible(&[Cause::SecurityList, Cause::SecurityGroup]);
        all.extend(if is_same_subnet(evidence) { Vec::new() } else { possible(&[Cause::RouteTable, Cause::Gateway]) });
        all.extend(vnic_conntrack(evidence));
        if matches!(evidence.service, Some(TargetService::Dns)) {
            // A resolver of one's own.
            all.extend(possible(&[Cause::ServiceSilent]));
        }
        if evidence.kind == ProbeKind::PathMtu {
            // Behind what drops small packets, too.
            all.extend(possible(&[Cause::PathMtu]));
        }
        all.extend(hidden);
        return all;
    }
    let mut all = found;
    all.extend(hidden);
    all
}

/// What happens to the probe from a neighbour of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Neighbour {
    Passes,
    /// The network admits its packets, and the target's host drops them.
    Arrives,
    Lost,
}

impl Neighbour {
    /// `None` if the packets are lost, and no agent watched whether they arrive.
    fn of(evidence: &Evidence, trial: &Trial) -> Option<Self> {
        // Where answers left the host, it does not drop the packets.
        let host_answers = Tap::last(evidence) == Some(Tap::TargetOut);
        match trial.arrived {
            _ if trial.tally.reaches() => Some(Self::Passes),
            None if !host_answers => None,
            Some(1..) if !host_answers => Some(Self::Arrives),
            _ => Some(Self::Lost),
        }
    }
}

/// One port or protocol passes and another does not: a security rule. Sources of the same subnet tell list from group if all of them
/// agree, unless all VNICs of the subnet have the same groups.
fn security_rules(evidence: &Evidence) -> Vec<Finding> {
    let trials = evidence.trials(Change::SubnetNeighbour);
    let neighbours: BTreeSet<Neighbour> = trials.filter_map(|trial| Neighbour::of(evidence, trial)).collect();
    let likely = |cause| Finding::new(cause, Strength::Likely);
    let firewall = |strength| Finding::new(Cause::HostFirewall, strength).at(Place::TargetHost);
    match Vec::from_iter(&neighbours).as_slice() {
        [Neighbour::Passes] => vec![likely(Cause::SecurityGroup)],
        [Neighbour::Arrives] => vec![likely(Cause::SecurityGroup), firewall(Strength::Likely)],
        [Neighbour::Lost] if evidence.arrival.is_some() => vec![likely(Cause::SecurityList)],
        _ => {
            let mut left = possible(&[Cause::SecurityList, Cause::SecurityGroup]);
            if evidence.arrival.is_none() || neighbours.contains(&Neighbour::Arrives) {
                left.push(firewall(Strength::Possible));
            }
            left
        }
    }
}

/// Nothing passes between the two.
fn routes(evidence: &Evidence) -> Vec<Finding> {
    let reaches = |change| evidence.reaches(change);
    let others_pass = reaches(Change::OtherTarget) == Some(true);
    let neighbour = reaches(Change::SubnetNeighbour);
    // A source that needs no route.
    let unrouted = reaches(Change::TargetNeighbour);
    if is_same_subnet(evidence) || !others_pass || neighbour == Some(true) || unrouted == Some(false) {
        return Vec::new();
    }
    let returns = Tap::last(evidence) == Some(Tap::TargetOut);
    let mut left = match (reaches(Change::OtherSubnet), neighbour) {
        // Requests arrive and answers do not: a return route.
        _ if returns => possible(&[Cause::Gateway, Cause::RouteTable]),
        (Some(true), Some(false)) => return vec![Finding::new(Cause::RouteTable, Strength::Likely)],
        (Some(true), _) => possible(&[Cause::RouteTable]),
        // All subnets can have the same route table.
        _ => possible(&[Cause::Gateway, Cause::RouteTable]),
    };
    // Rules that admit nothing; or one rule, and another fault behind it that the other probes met.
    if !is_admitted_by_rules(evidence) {
        left.extend(possible(&[Cause::SecurityList, Cause::SecurityGroup]));
    }
    left
}

/// A packet of the flow came from the target: stateful rules then admit the flow, so that what still does not pass is not dropped by
/// them.
fn is_admitted_by_rules(evidence: &Evidence) -> bool {
    let came = evidence.reaches(Change::FromTarget) == Some(true);
    came && evidence.trial(Change::OpenedByTarget).is_some_and(Tally::fails)
}

/// New flows fail although the host's own table has room, and the host has very many connections.
fn vnic_conntrack(evidence: &Evidence) -> Vec<Finding> {
    let many = evidence.attempt.after.connections.is_some_and(|count| count >= VNIC_CONNECTIONS);
    let isolated = evidence.trial(Change::OtherTarget).is_some_and(Tally::fails);
    match (many, isolated) {
        (true, true) => vec![Finding::new(Cause::VnicConntrack, Strength::Possible)],
        _ => Vec::new(),
    }
}

fn possible(causes: &[Cause]) -> Vec<Finding> {
    causes.iter().map(|cause| Finding::new(*cause, Strength::Possible)).collect()
}
