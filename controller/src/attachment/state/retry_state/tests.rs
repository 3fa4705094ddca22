//! A retry state as the planner's golden cases write it.

use std::time::Duration;

use serde::Deserialize;
use tokio::time::Instant;
use vcn::Ocid;

use super::{FailedAttempt, Failure, RetryState};

/// What is remembered of an object.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(in crate::attachment) struct Remembered {
    refused: Option<u64>,
    unseen_looks: u32,
    /// How often its attach failed, the last time just now.
    failed_attaches: u32,
    /// The same of its detach.
    failed_detaches: u32,
    /// How often another program detached its VNIC, the last time just now.
    losses: u32,
    accepted_detach: Option<Ocid>,
    /// For how long no list has had a VNIC of it.
    absent_seconds: u32,
}

impl Remembered {
    pub(in crate::attachment) fn state(&self, now: Instant) -> RetryState {
        let since = Some(now - Duration::from_secs(self.absent_seconds.into()));
        let attempts = [
            (FailedAttempt::Attach, self.failed_attaches),
            (FailedAttempt::Detach, self.failed_detaches),
            (FailedAttempt::Loss, self.losses),
        ];
        let failed = attempts.into_iter().find(|(_, number)| *number > 0);
        RetryState {
            refused: self.refused,
            unseen_reconciles: self.unseen_looks,
            failure: failed.map(|(attempt, number)| Failure { attempt, number, at: now, generation: None }),
            detach: self.accepted_detach.clone().map(|id| (id, now)),
            absent_since: since,
            unlisted_since: since,
            ..RetryState::default()
        }
    }
}
