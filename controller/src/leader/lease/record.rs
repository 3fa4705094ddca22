//! What a lease says, and what to do about it. Pure.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;

/// A lease as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    /// Its resource version: a write that names an old one is refused. None of one that is gone.
    pub(super) version: Option<String>,
    pub(super) holder: Option<String>,
    /// For how long it is good after a renewal, as its holder says.
    pub(super) duration: Duration,
    pub(super) transitions: i32,
    pub(super) acquired: Option<Timestamp>,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// There is none: make it, as the follower of this one.
    Create(Record),
    /// It is ours, or free, or its holder is gone: write it over this one.
    Write(Record),
    /// Somebody else has it.
    Wait,
}

impl Record {
    pub(super) fn of(lease: &Lease) -> Self {
        let spec = lease.spec.clone().unwrap_or_default();
        let seconds = u64::try_from(spec.lease_duration_seconds.unwrap_or(0)).unwrap_or(0);
        Self {
            version: lease.metadata.resource_version.clone(),
            holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
            duration: Duration::from_secs(seconds),
            transitions: spec.lease_transitions.unwrap_or(0),
            acquired: spec.acquire_time.map(|time| time.0),
        }
    }
}

/// Decides; `unchanged` is for how long the record has been as it is, or gone, by our own clock. None: there never was one.
pub(super) fn decide(record: Option<&Record>, unchanged: Duration, me: &str) -> Step {
    let Some(record) = record else { return Step::Create(Record::default()) };
    match record.holder.as_deref() {
        Some(holder) if holder != me && unchanged < record.duration => Step::Wait,
        _ if record.version.is_none() => Step::Create(record.clone()),
        _ => Step::Write(record.clone()),
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
    fn what_another_renews_is_left_to_it_and_what_it_left_is_taken_after_its_time() {
        let theirs = held_by("b");
        assert_eq!(decide(Some(&theirs), Duration::from_millis(14_999), "a"), Step::Wait);
        assert_eq!(decide(Some(&theirs), Duration::from_secs(15), "a"), Step::Write(theirs));
    }

    #[test]
    fn what_is_ours_or_free_or_missing_is_written_at_once() {
        let (ours, free) = (held_by("a"), Record { holder: None, ..held_by("x") });
        assert_eq!(decide(Some(&ours), Duration::ZERO, "a"), Step::Write(ours.clone()));
        assert_eq!(decide(Some(&free), Duration::ZERO, "a"), Step::Write(free.clone()));
        assert_eq!(decide(None, Duration::ZERO, "a"), Step::Create(Record::default()));
    }

    #[test]
    fn what_another_held_when_it_was_deleted_is_made_anew_after_its_time_and_what_we_held_at_once() {
        let theirs = Record { version: None, ..held_by("b") };
        assert_eq!(decide(Some(&theirs), Duration::from_millis(14_999), "a"), Step::Wait);
        assert_eq!(decide(Some(&theirs), Duration::from_secs(15), "a"), Step::Create(theirs.clone()));
        assert_eq!(decide(Some(&theirs), Duration::ZERO, "b"), Step::Create(theirs));
    }
}
