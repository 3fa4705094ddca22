//! The bucket itself: pure, every function takes the time.

#[cfg(test)]
mod tests;

use std::time::Duration;

use tokio::time::Instant;

use super::{BudgetState, Rates};

/// By how much a 429 shrinks the rate.
const CUT: f64 = 0.5;
/// The requests of one burst are throttled together: that counts once.
const ONE_BURST: Duration = Duration::from_secs(1);
/// What the rate gains in a second of answered calls, in requests per second.
const GAIN: f64 = 0.5;
/// The time over which the usual rate is averaged. It is longer than the rate needs to recover from the least, at half a
/// request per second each second. It is short compared to a rollout.
const USUAL: Duration = Duration::from_mins(1);
/// The part of a token that is enough for a request. Rounding may lose what a tenth of a microsecond adds, and a caller must not
/// wake a little too early each time.
const WHOLE: f64 = 1.0 - 1e-6;
/// The longest accepted Retry-After: more would be the mistake of a proxy.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(5);

#[derive(Debug)]
pub(super) struct Bucket {
    rates: Rates,
    rate: f64,
    /// At the last count.
    usual: f64,
    /// Requests that may go at once.
    tokens: f64,
    counted: Instant,
    paused_until: Option<Instant>,
    throttled_at: Option<Instant>,
}

impl Bucket {
    pub(super) fn new(rates: Rates, now: Instant) -> Self {
        let least = if rates.least > 0.0 { rates.least } else { 0.01 };
        let rates = Rates { most: rates.most.max(least), least, burst: rates.burst.max(1.0) };
        Self {
            rate: rates.most,
            usual: rates.most,
            tokens: rates.burst,
            rates,
            counted: now,
            paused_until: None,
            throttled_at: None,
        }
    }

    /// The turn of a caller with so many before it, if the service throttles no more.
    pub(super) fn turn(&mut self, now: Instant, before: u32) -> Instant {
        self.count(now);
        let wait = ((f64::from(before) + WHOLE - self.tokens) / self.rate).max(0.0);
        // No tokens come in during a backoff, so the rest of it comes on top.
        let start = self.paused_until.map_or(now, |until| until.max(now));
        start + Duration::try_from_secs_f64(wait).unwrap_or(MAX_RETRY_AFTER)
    }

    /// Takes the turn of the first in line.
    ///
    /// # Errors
    /// When to try again, where it is not yet.
    pub(super) fn take(&mut self, now: Instant) -> Result<(), Instant> {
        let turn = self.turn(now, 0);
        if turn > now {
            return Err(turn);
        }
        self.tokens = (self.tokens - 1.0).max(0.0);
        Ok(())
    }

    pub(super) fn throttled(&mut self, now: Instant, retry_after: Option<Duration>) {
        self.count(now);
        if let Some(pause) = retry_after {
            let until = now + pause.min(MAX_RETRY_AFTER);
            self.paused_until = Some(self.paused_until.map_or(until, |before| before.max(until)));
        }
        if self.throttled_at.is_none_or(|throttled_at| now >= throttled_at + ONE_BURST) {
            self.rate = (self.rate * CUT).max(self.rates.least);
            self.tokens = 0.0;
            self.throttled_at = Some(now);
        }
    }

    pub(super) fn answered(&mut self, now: Instant) {
        // Answers to requests from before the throttling do not count.
        if self.throttled_at.is_none_or(|throttled_at| now >= throttled_at + ONE_BURST) {
            self.count(now);
            self.rate = (self.rate + GAIN / self.rate).min(self.rates.most);
        }
    }

    pub(super) fn state(&self, now: Instant) -> BudgetState {
        let paused = self.paused_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        BudgetState { rate: self.rate, usual: self.usual(now), paused }
    }

    /// The mean of the rate, older values weighing less.
    fn usual(&self, now: Instant) -> f64 {
        let passed = now.saturating_duration_since(self.counted).as_secs_f64() / USUAL.as_secs_f64();
        self.rate + (self.usual - self.rate) * (-passed).exp()
    }

    /// Fills up to `now`; no tokens come in during a backoff.
    fn count(&mut self, now: Instant) {
        self.usual = self.usual(now);
        let from = self.paused_until.map_or(self.counted, |until| until.max(self.counted));
        let seconds = now.saturating_duration_since(from).as_secs_f64();
        self.tokens = (self.tokens + seconds * self.rate).min(self.rates.burst);
        self.counted = self.counted.max(now);
    }
}
