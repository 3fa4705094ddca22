//! Counters that only grow, as events per minute.

use std::time::Instant;

use crate::collector::Gap;

/// The last total of a counter.
#[derive(Debug, Default)]
pub(super) struct Rate {
    last: Option<(f64, Instant)>,
}

impl Rate {
    /// Events per minute since the last call.
    pub(super) fn per_minute(&mut self, total: f64, now: Instant) -> Result<f64, Gap> {
        let Some(grown) = self.grown(total, now) else {
            return Err(Gap::unknown("a rate needs two samples"));
        };
        Ok(grown)
    }

    fn grown(&mut self, total: f64, now: Instant) -> Option<f64> {
        let (before, then) = self.last.replace((total, now))?;
        let minutes = now.saturating_duration_since(then).as_secs_f64() / 60.0;
        // A counter that began again at zero has no rate this time.
        (total >= before && minutes > 0.0).then(|| (total - before) / minutes)
    }
}
