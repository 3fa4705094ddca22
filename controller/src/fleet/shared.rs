//! The roster, shared by the tasks of the leader.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::fleet::poll::PollLimits;
use crate::fleet::roster::Roster;

/// One roster for several tasks. The lock is never held across an await.
#[derive(Debug)]
pub(crate) struct SharedRoster {
    roster: Mutex<Roster>,
    changed: Notify,
}

impl SharedRoster {
    /// Of a leader that begins now.
    pub(crate) fn new(limits: PollLimits) -> Self {
        Self { roster: Mutex::new(Roster::new(limits, Instant::now())), changed: Notify::new() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Roster> {
        // Each change is complete by itself, so a panic elsewhere leaves it usable.
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the sweep when agents appeared.
    pub(crate) const fn changed(&self) -> &Notify {
        &self.changed
    }
}
