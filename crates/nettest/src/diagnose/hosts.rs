//! Rows of the hosts: what the kernel of one side counts or finds.

use api::TargetService;

use super::{Finding, Strength, is_misrouted, rose_by_lost_packets};
use crate::cause::{Cause, Place};
use crate::probe::{Change, Evidence, Failure, HostState, ProbeReport};
use crate::tap::Tap;
use crate::verdict::is_full;

/// The kernel's route for the source address leaves by another link, or there is none. No packet is needed.
pub(super) fn route(evidence: &Evidence) -> Option<Finding> {
    let route = evidence.attempt.route.as_ref()?;
    // A lost link and a source that the kernel chose are not missing rules. The metadata service and the resolver are behind links
    // with a VNIC's address only, and no security rule or route table applies to them.
    let is_on_link = matches!(evidence.service, Some(TargetService::Imds | TargetService::Dns));
    let is_wrong = is_misrouted(route) && (route.device.is_empty() || evidence.source_requested || is_on_link);
    // From another address or host, or to another target, the lookup is not misrouted.
    let avoided_by = &[Change::OwnAddress, Change::OtherTarget, Change::SubnetNeighbour, Change::OtherNode];
    is_wrong.then(|| Finding::traced(Cause::HostRoute, avoided_by))
}

/// The source's neighbour table refused an entry, and is full.
pub(super) fn neighbour_table(evidence: &Evidence) -> Option<Finding> {
    let (before, after) = states(&evidence.attempt);
    let rose = after.neighbour_overflows.unwrap_or(0) > before.neighbour_overflows.unwrap_or(0);
    let never_left = Tap::last(evidence) == Some(Tap::SourceRoute);
    let is_full = full(after.neighbours, after.neighbour_limit);
    // A known neighbour, such as a gateway, needs no entry; other hosts have their own table.
    let avoided_by = &[Change::OtherTarget, Change::SubnetNeighbour, Change::OtherNode];
    (rose && is_full && never_left).then(|| Finding::traced(Cause::NeighbourTable, avoided_by))
}

/// The source's table of connections dropped the packets.
pub(super) fn conntrack_of_source(evidence: &Evidence) -> Option<Finding> {
    let lost_here = matches!(Tap::last(evidence), Some(Tap::SourceRoute | Tap::SourceIn));
    let other_hosts = &[Change::SubnetNeighbour, Change::OtherSubnet, Change::OtherNode];
    let found = conntrack(evidence, &evidence.attempt, other_hosts);
    found.filter(|_| lost_here).map(|found| found.at(Place::SourceHost))
}

/// The target's table of connections dropped the packets.
pub(super) fn conntrack_of_target(evidence: &Evidence) -> Option<Finding> {
    let lost_there = Tap::last(evidence) == Some(Tap::TargetIn);
    let found = evidence.arrival.as_ref().and_then(|report| conntrack(evidence, report, &[Change::OtherTarget]));
    found.filter(|_| lost_there).map(|found| found.at(Place::TargetHost))
}

fn conntrack(evidence: &Evidence, report: &ProbeReport, avoided_by: &'static [Change]) -> Option<Finding> {
    let (before, after) = states(report);
    let dropped = rose_by_lost_packets(evidence, before.connection_drops, after.connection_drops);
    let is_full = full(after.connections, after.connection_limit);
    (dropped && is_full).then(|| Finding::traced(Cause::HostConntrack, avoided_by))
}

/// The source's reverse-path filter dropped the answers.
pub(super) fn reverse_path_of_source(evidence: &Evidence) -> Option<Finding> {
    let answered = Tap::last(evidence) == Some(Tap::SourceIn);
    let avoided_by = &[Change::OwnAddress, Change::OtherTarget, Change::SubnetNeighbour, Change::OtherNode];
    let found = reverse_path(evidence, &evidence.attempt, avoided_by);
    found.filter(|_| answered).map(|found| found.at(Place::SourceHost))
}

/// The target's reverse-path filter dropped the packets.
pub(super) fn reverse_path_of_target(evidence: &Evidence) -> Option<Finding> {
    let arrived = Tap::last(evidence) == Some(Tap::TargetIn);
    // The way back to a node of the link's own subnet is this link.
    let avoided_by = &[Change::TargetNeighbour, Change::OtherTarget];
    let found = evidence.arrival.as_ref().and_then(|report| reverse_path(evidence, report, avoided_by));
    found.filter(|_| arrived).map(|found| found.at(Place::TargetHost))
}

fn reverse_path(evidence: &Evidence, report: &ProbeReport, avoided_by: &'static [Change]) -> Option<Finding> {
    let (before, after) = states(report);
    let dropped = rose_by_lost_packets(evidence, before.rp_filter_drops, after.rp_filter_drops);
    (dropped && after.rp_filter == Some(1)).then(|| Finding::traced(Cause::ReversePathFilter, avoided_by))
}

/// The answers leave by another link than the packets came by, and do not arrive.
pub(super) fn asymmetric(evidence: &Evidence) -> Option<Finding> {
    let target = evidence.arrival.as_ref().filter(|report| !report.taps.incomplete)?;
    let (inward, out) = (&target.taps.inward, &target.taps.out);
    let differ = inward.packets > 0 && out.packets > 0 && inward.device != out.device;
    let lost = Tap::last(evidence) == Some(Tap::TargetOut);
    let forced = evidence.reaches(Change::ForcedLink) == Some(true);
    let strength = if forced { Strength::Proven } else { Strength::Likely };
    (differ && lost).then(|| Finding::new(Cause::AsymmetricRoute, strength))
}

/// An ICMP error "prohibited" from one of the two hosts.
pub(super) fn firewall_error(evidence: &Evidence) -> Option<Finding> {
    let Some(Failure::Prohibited(from)) = evidence.attempt.tally.failure else { return None };
    let target = evidence.target.address.or(evidence.attempt.target);
    let avoided_by = &[Change::OtherPort, Change::OtherProtocol, Change::OtherTarget, Change::OtherNode];
    let found = Finding::traced(Cause::HostFirewall, avoided_by);
    if Some(from) == target {
        Some(found.at(Place::TargetHost))
    } else if Some(from) == evidence.attempt.source {
        Some(found.at(Place::SourceHost))
    } else {
        None
    }
}

/// The metadata service itself never refuses a connection: a rule of the host does.
pub(super) fn firewall_of_metadata(evidence: &Evidence) -> Option<Finding> {
    let refused = evidence.attempt.tally.failure == Some(Failure::Refused);
    let is_metadata = evidence.service == Some(api::TargetService::Imds);
    (refused && is_metadata).then(|| Finding::new(Cause::HostFirewall, Strength::Likely))
}

/// The target's host refuses the connection.
pub(super) fn port_closed(evidence: &Evidence) -> Option<Finding> {
    let refused = evidence.attempt.tally.failure == Some(Failure::Refused) && evidence.attempt.tally.received == 0;
    let is_metadata = evidence.service == Some(api::TargetService::Imds);
    (refused && !is_metadata && evidence.received.is_none()).then(|| Finding::new(Cause::PortClosed, Strength::Proven))
}

/// The target's agent listened on the port, and the connection was refused.
pub(super) fn firewall_refuses(evidence: &Evidence) -> Option<Finding> {
    let refused = evidence.attempt.tally.failure == Some(Failure::Refused);
    let found = Finding::new(Cause::HostFirewall, Strength::Likely).at(Place::TargetHost);
    (refused && evidence.received.is_some()).then_some(found)
}

fn states(report: &ProbeReport) -> (&HostState, &HostState) {
    (&report.before, &report.after)
}

fn full(count: Option<u64>, limit: Option<u64>) -> bool {
    matches!((count, limit), (Some(count), Some(limit)) if is_full(count, limit))
}
