//! The contents of a Lease, and the next step. Pure.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    /// Its resource version: a write that names an old one is refused. `None` if it was deleted.
    pub(super) version: Option<String>,
    /// Another Lease of the same name counts transitions from the start.
    pub(super) uid: Option<String>,
    pub(super) holder: Option<String>,
    /// How long it is valid after a renewal, according to its holder.
    pub(super) duration: Duration,
    pub(super) transitions: i32,
    pub(super) acquired: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LeaseStep {
    /// There is none: create it, as the successor of this one.
    Create(Record),
    /// It is held, free or expired: write it over this one.
    Write(Record),
    /// Another replica holds it.
    Wait,
}

impl Record {
    pub(super) fn of(lease: &Lease) -> Self {
        let spec = lease.spec.clone().unwrap_or_default();
        let seconds = u64::try_from(spec.lease_duration_seconds.unwrap_or(0)).unwrap_or(0);
        Self {
            version: lease.metadata.resource_version.clone(),
            uid: lease.metadata.uid.clone(),
            holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
            duration: Duration::from_secs(seconds),
            transitions: spec.lease_transitions.unwrap_or(0),
            acquired: spec.acquire_time.map(|time| time.0),
        }
    }
}

/// Decides; `unchanged` is for how long the record is unchanged or missing, by our own clock. `None`: there never was one.
pub(super) fn decide(record: Option<&Record>, unchanged: Duration, me: &str) -> LeaseStep {
    let Some(record) = record else { return LeaseStep::Create(Record::default()) };
    match record.holder.as_deref() {
        Some(holder) if holder != me && unchanged < record.duration => LeaseStep::Wait,
        _ if record.version.is_none() => LeaseStep::Create(record.clone()),
        _ => LeaseStep::Write(record.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held_by(holder: &str) -> Record {
        Record {
            version: Some("7".to_owned()),
            holder: Some(holder.to_owned()),
            duration: Duration::from_secs(15),
            ..Record::default()
        }
    }

    #[test]
    fn a_lease_of_another_replica_is_taken_after_it_expires() {
        let other = held_by("b");
        assert_eq!(decide(Some(&other), Duration::from_millis(14_999), "a"), LeaseStep::Wait);
        assert_eq!(decide(Some(&other), Duration::from_secs(15), "a"), LeaseStep::Write(other));
    }

    #[test]
    fn a_held_free_or_missing_lease_is_written_at_once() {
        let (ours, free) = (held_by("a"), Record { holder: None, ..held_by("x") });
        assert_eq!(decide(Some(&ours), Duration::ZERO, "a"), LeaseStep::Write(ours.clone()));
        assert_eq!(decide(Some(&free), Duration::ZERO, "a"), LeaseStep::Write(free.clone()));
        assert_eq!(decide(None, Duration::ZERO, "a"), LeaseStep::Create(Record::default()));
    }

    #[test]
    fn a_deleted_lease_is_created_again_after_it_expires() {
        let other = Record { version: None, ..held_by("b") };
        assert_eq!(decide(Some(&other), Duration::from_millis(14_999), "a"), LeaseStep::Wait);
        assert_eq!(decide(Some(&other), Duration::from_secs(15), "a"), LeaseStep::Create(other.clone()));
        assert_eq!(decide(Some(&other), Duration::ZERO, "b"), LeaseStep::Create(other));
    }
}
