//! When the sources are polled again.

use std::time::Duration;

use crate::sources::backoff::{UNSETTLED, chance, jittered};

/// How often it polls soon while something is missing, for some five minutes; on a Flannel node nothing will come.
const MAX_FAST_REQUESTS: u32 = 30;

/// How often it polls soon after a link came or went. A hot-plugged VNIC and its addresses are published some seconds before or
/// after its link appears, by independent services.
const EAGER: u32 = 6;

/// When to poll again.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Answers in a row that were not complete.
    unsettled: u32,
    /// Polls that are due soon, because a link came or went.
    eager: u32,
}

impl Pace {
    pub(super) fn note(&mut self, is_settled: bool) {
        self.unsettled = if is_settled { 0 } else { self.unsettled.saturating_add(1) };
    }

    pub(super) const fn note_timer(&mut self) {
        self.eager = self.eager.saturating_sub(1);
    }

    pub(super) const fn note_link(&mut self) {
        self.eager = EAGER - 1;
    }

    pub(super) fn pause(&self, resync: Duration) -> Duration {
        let pause = match self.unsettled {
            attempt @ 1..=MAX_FAST_REQUESTS => UNSETTLED.delay(attempt, chance()).min(resync),
            _ => jittered(resync, chance()),
        };
        match self.eager {
            0 => pause,
            left => pause.min(UNSETTLED.delay(EAGER.saturating_sub(left), chance())),
        }
    }
}
