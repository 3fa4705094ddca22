//! Rows of the services: the resolver and the metadata service.

use api::TargetService;

use super::{Finding, Strength, rose_by_lost_packets};
use crate::cause::Cause;
use crate::probe::{Change, Evidence, Failure, ProbeKind, Tally};

const TOO_MANY_REQUESTS: u16 = 429;

/// The source's host found no address for the name.
pub(super) fn name_resolution(evidence: &Evidence) -> Option<Finding> {
    let unresolved = matches!(evidence.attempt.tally.failure, Some(Failure::Unresolved(_)));
    unresolved.then(|| Finding::new(Cause::NameResolution, Strength::Proven))
}

/// The metadata service says so itself.
pub(super) fn metadata_throttled(evidence: &Evidence) -> Option<Finding> {
    let throttled = evidence.attempt.tally.failure == Some(Failure::Status(TOO_MANY_REQUESTS));
    let is_metadata = evidence.service == Some(TargetService::Imds);
    (throttled && is_metadata).then(|| Finding::new(Cause::MetadataThrottled, Strength::Proven))
}

/// The service answers, and with an error.
pub(super) fn service_error(evidence: &Evidence) -> Option<Finding> {
    let is_error = match &evidence.attempt.tally.failure {
        Some(Failure::Status(status)) => *status != TOO_MANY_REQUESTS || evidence.service != Some(TargetService::Imds),
        Some(Failure::Invalid(_)) => true,
        _ => false,
    };
    is_error.then(|| Finding::new(Cause::ServiceError, Strength::Proven))
}

/// One query per second passes, many do not; TCP passes, too, if it was tried.
pub(super) fn dns_rate(evidence: &Evidence) -> Option<Finding> {
    let is_dns = evidence.kind == ProbeKind::Dns;
    let slow = evidence.reaches(Change::SlowRate) == Some(true);
    let over_tcp = evidence.reaches(Change::OverTcp) != Some(false);
    // The same queries at the same rate still fail, or were not sent again.
    let again = evidence.trial(Change::Again).is_none_or(Tally::fails);
    (is_dns && slow && over_tcp && again && conntrack_race(evidence).is_none())
        .then(|| Finding::new(Cause::DnsRate, Strength::Likely))
}

/// The source's host lost as many entries of connections as queries.
pub(super) fn conntrack_race(evidence: &Evidence) -> Option<Finding> {
    let (before, after) = (&evidence.attempt.before, &evidence.attempt.after);
    let raced = rose_by_lost_packets(evidence, before.insert_failures, after.insert_failures);
    (evidence.kind == ProbeKind::Dns && raced).then(|| Finding::new(Cause::ConntrackRace, Strength::Likely))
}
