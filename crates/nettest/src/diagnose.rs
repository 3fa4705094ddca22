//! From evidence to a verdict: each row of the fault matrix is one function that searches for its own traces; this module
//! decides between those that found some. Pure.

mod hosts;
mod network;
mod services;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::net::IpAddr;

use api::TargetService;

use crate::cause::{Cause, Place};
use crate::probe::{Change, Evidence, Failure, ObservedRoute, ProbeKind, ProbeReport, Transport};
use crate::tap::Tap;
use crate::verdict::{self, HostTexts, Label, Verdict};

/// A row that found its traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) cause: Cause,
    pub(crate) strength: Strength,
    /// Where, if not where the cause usually is.
    pub(crate) place: Place,
    /// The trials that avoid what a host shows: it is the cause only if one of them passes.
    pub(crate) avoided_by: &'static [Change],
}

/// What a row's traces amount to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Strength {
    /// It would explain what was lost.
    Possible,
    /// It explains it, and something else cannot be excluded.
    Likely,
    /// Nothing else explains it.
    Proven,
}

impl Finding {
    pub(crate) const fn new(cause: Cause, strength: Strength) -> Self {
        Self { cause, strength, place: cause.place(), avoided_by: &[] }
    }

    /// Proven by a host's own traces and one of these trials.
    pub(crate) const fn traced(cause: Cause, avoided_by: &'static [Change]) -> Self {
        Self { avoided_by, ..Self::new(cause, Strength::Proven) }
    }

    pub(crate) const fn at(mut self, place: Place) -> Self {
        self.place = place;
        self
    }
}

/// A row of the matrix.
type Row = fn(&Evidence) -> Option<Finding>;

/// The rows of hosts and services, whose traces stand for themselves.
const ROWS: &[Row] = &[
    services::name_resolution,
    services::metadata_throttled,
    services::service_error,
    services::dns_rate,
    services::conntrack_race,
    hosts::route,
    hosts::neighbour_table,
    hosts::conntrack_of_source,
    hosts::conntrack_of_target,
    hosts::reverse_path_of_source,
    hosts::reverse_path_of_target,
    hosts::asymmetric,
    hosts::firewall_error,
    hosts::firewall_of_metadata,
    hosts::port_closed,
    hosts::firewall_refuses,
    network::path_mtu,
    network::bandwidth,
    network::large_packets,
];

/// The verdict on a pair. A passing probe is never accused, whatever counters rose meanwhile.
pub fn diagnose(evidence: &Evidence) -> Verdict {
    if !has_failed(evidence) {
        return state(evidence, Label::Reachable, &[]);
    }
    let mut found: Vec<Finding> = ROWS.iter().filter_map(|row| row(evidence)).collect();
    for found in &mut found {
        let passes = |change: &Change| evidence.reaches(*change) == Some(true);
        if !found.avoided_by.is_empty() && !found.avoided_by.iter().any(passes) {
            found.strength = Strength::Likely;
        }
    }
    let of = |strength| found.iter().copied().filter(|found| found.strength == strength).collect::<Vec<_>>();
    let proven = of(Strength::Proven);
    if !proven.is_empty() {
        return state(evidence, Label::Proven, &proven);
    }
    let is_traced = found.iter().any(|found| !found.avoided_by.is_empty());
    let intermittent = evidence.trial(Change::Again).is_some_and(|again| !again.fails());
    if intermittent && !is_traced {
        return state(evidence, Label::Likely, &[Finding::new(Cause::Intermittent, Strength::Likely)]);
    }
    let mut left = of(Strength::Likely);
    // Rules and routes drop all packets alike.
    let some_pass = evidence.attempt.tally.received > 0;
    if left.is_empty() && some_pass {
        left = network::partial_loss();
    }
    if left.is_empty() {
        left = network::rules_and_routes(evidence);
    }
    left.extend(of(Strength::Possible));
    let mut listed = BTreeSet::new();
    left.retain(|found| listed.insert(found.cause));
    let label = match left.as_slice() {
        [one] if one.strength >= Strength::Likely => Label::Likely,
        _ => Label::OneOf,
    };
    state(evidence, label, &left)
}

/// The trials that avoid what a host shows. `None` if no row is sure before any trial: then all trials are needed.
pub(crate) fn avoiding(evidence: &Evidence) -> Option<BTreeSet<Change>> {
    let found = ROWS.iter().filter_map(|row| row(evidence)).filter(|found| found.strength == Strength::Proven);
    let changes = found.map(|found| found.avoided_by.iter().copied());
    changes.fold(None, |all, changes| Some(all.into_iter().flatten().chain(changes).collect()))
}

/// Whether there is something to explain.
pub(crate) fn has_failed(evidence: &Evidence) -> bool {
    let tally = &evidence.attempt.tally;
    match evidence.kind {
        // Nothing was looked up or sent.
        _ if matches!(tally.failure, Some(Failure::Unresolved(_))) => true,
        // A lookup, without packets.
        ProbeKind::Route => evidence.attempt.route.as_ref().is_some_and(is_misrouted),
        // Nothing need answer a datagram: it is enough that it arrives, and that no error comes back.
        ProbeKind::Udp if tally.failure == Some(Failure::Refused) => false,
        ProbeKind::Udp if is_silent(evidence) => {
            let arrived = evidence.arrival.as_ref().map(|report| report.taps.inward.packets);
            let filtered = hosts::reverse_path_of_target(evidence).is_some();
            tally.fails() && (filtered || arrived.is_none_or(|arrived| arrived < u32::from(tally.sent)))
        }
        _ => tally.fails(),
    }
}

/// Whether the kernel has no route, or one that leaves by another link than the source address's own.
pub(crate) fn is_misrouted(route: &ObservedRoute) -> bool {
    route.device.is_empty() || (!route.expected.is_empty() && route.device != route.expected)
}

fn is_silent(evidence: &Evidence) -> bool {
    matches!(evidence.attempt.tally.failure, None | Some(Failure::Silence))
}

/// Whether a counter rose by at least as much as was lost: a few other packets of a busy host prove nothing.
pub(crate) fn rose_by_lost_packets(evidence: &Evidence, before: Option<u64>, after: Option<u64>) -> bool {
    let lost = u64::from(evidence.attempt.tally.lost()).max(1);
    matches!((before, after), (Some(before), Some(after)) if after.saturating_sub(before) >= lost)
}

/// Whether the target's address is in the source's subnet, so that no route table applies.
pub(crate) fn is_same_subnet(evidence: &Evidence) -> bool {
    let target = evidence.target.address.or(evidence.attempt.target);
    target.and_then(|target| shares_subnet(&evidence.attempt, target)) == Some(true)
}

/// Whether an address is in a subnet that a host reports of the pair's link. `None` if it reports none of the address's family.
pub(crate) fn shares_subnet(report: &ProbeReport, address: IpAddr) -> Option<bool> {
    let reported = report.subnet.iter().chain(&report.link_subnets);
    let of_family: Vec<_> = reported.filter(|subnet| subnet.is_ipv4() == address.is_ipv4()).collect();
    (!of_family.is_empty()).then(|| of_family.iter().any(|subnet| subnet.contains(address)))
}

/// Whether the target is one of OCI's services on each host's own link: metadata, resolver, time. No security rule and no route table
/// applies to it.
pub(crate) fn is_link_local(evidence: &Evidence) -> bool {
    match evidence.target.address.or(evidence.attempt.target) {
        Some(IpAddr::V4(address)) => address.is_link_local(),
        Some(IpAddr::V6(address)) => address.segments()[..2] == [0xfd00, 0x00c1],
        None => evidence.service == Some(TargetService::Imds),
    }
}

fn state(evidence: &Evidence, label: Label, found: &[Finding]) -> Verdict {
    let places: BTreeSet<Place> = found.iter().map(|found| found.place).collect();
    let place = match places.iter().collect::<Vec<_>>().as_slice() {
        [place] => **place,
        _ => Place::Unknown,
    };
    let causes: Vec<Cause> = found.iter().map(|found| found.cause).collect();
    let arrival = evidence.arrival.as_ref();
    let sides = [("source", Some(&evidence.attempt)), ("target", arrival)]
        .map(|(side, report)| (side, report.map(verdict::host).unwrap_or_default()));
    let text = |of: fn(&HostTexts) -> &Vec<String>| {
        let shown = sides.iter().filter(|(_, shown)| !of(shown).is_empty());
        let shown: Vec<String> = shown.map(|(side, shown)| format!("{side}: {}", of(shown).join(", "))).collect();
        shown.join("; ")
    };
    let fix = verdict::fix(label, &causes, usize::MAX);
    Verdict {
        label,
        place,
        last_tap: Tap::last(evidence),
        failure: verdict::failure(evidence),
        before: text(|shown| &shown.before),
        after: text(|shown| &shown.after),
        fix,
        causes,
    }
}

/// Whether packets of a connection or datagram were probed, so that another port is another rule.
pub(crate) fn has_ports(evidence: &Evidence) -> bool {
    matches!(evidence.transport(), Some(Transport::Tcp | Transport::Udp))
}
