//! When the leader last reached this agent: a change of a link is kept only if it still does.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use channel::SentReply;

/// The last exchanges with a trusted peer on the channel.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeaderContact(Arc<Mutex<Exchanges>>);

#[derive(Debug, Default)]
struct Exchanges {
    /// The last one whose reply arrived.
    whole: Option<SentReply>,
    /// When the later ones began whose replies did not; the earliest at the front.
    lost: Vec<Instant>,
}

/// More entries would add no information.
const LOST_MAX: usize = 8;

impl LeaderContact {
    /// A reply was sent.
    pub(crate) fn note(&self, reply: SentReply) {
        let mut exchanges = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if reply.is_acknowledged {
            *exchanges = Exchanges { whole: Some(reply), lost: Vec::new() };
        } else {
            exchanges.lost.push(reply.accepted);
            let excess = exchanges.lost.len().saturating_sub(LOST_MAX);
            exchanges.lost.drain(..excess);
        }
    }

    /// The last exchange of this process whose reply arrived.
    pub(crate) fn last(&self) -> Option<SentReply> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).whole
    }

    /// How many requests since then came after a moment, whose replies did not arrive.
    pub(crate) fn lost_since(&self, moment: Instant) -> usize {
        let exchanges = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        exchanges.lost.iter().filter(|accepted| **accepted > moment).count()
    }
}
