//! When the leader last reached this agent: a change of a link is kept only if it still does.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// The last request of a trusted peer on the channel.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeaderContact(Arc<Mutex<Option<Contact>>>);

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Contact {
    pub(crate) at: Instant,
    /// The leader's address.
    pub(crate) peer: Option<IpAddr>,
}

impl LeaderContact {
    /// A request came.
    pub(crate) fn note(&self, peer: Option<IpAddr>, now: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Contact { at: now, peer });
    }

    /// The last one of this process.
    #[expect(dead_code, reason = "options of links are applied by a later commit")]
    pub(crate) fn last(&self) -> Option<Contact> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
