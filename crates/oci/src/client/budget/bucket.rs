//! The bucket itself: pure, every function is told the time.

#[cfg(test)]
mod tests;

use std::time::Duration;

use tokio::time::Instant;

use super::{Rates, Standing};

/// By how much a 429 shrinks the rate.
const CUT: f64 = 0.5;
/// Requests of one burst are throttled together; that is one lesson.
const ONE_LESSON: Duration = Duration::from_secs(1);
/// What the rate gains in a second of answered calls, in requests per second.
const GAIN: f64 = 0.5;
/// Over so long the usual rate is taken: longer than the rate needs to rise from the least to what it was, half a request per
/// second each second, and short beside a rollout.
const USUAL: Duration = Duration::from_mins(1);
/// As much of a token as makes a request. What a tenth of a microsecond adds may be lost in rounding: who waits must not wake a
/// little too early for ever.
const WHOLE: f64 = 1.0 - 1e-6;
/// The longest pause taken from a Retry-After: more would be a mistake of somebody between us and the service.
const LONGEST_PAUSE: Duration = Duration::from_mins(5);

#[derive(Debug)]
pub(super) struct Bucket {
    rates: Rates,
    rate: f64,
    /// As it was when it was counted last.
    usual: f64,
    /// Requests that may go at once.
    tokens: f64,
    counted: Instant,
    paused_until: Option<Instant>,
    learnt: Option<Instant>,
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
            learnt: None,
        }
    }

    /// When the turn of one will be that has so many before it, if nobody is told to pause meanwhile.
    pub(super) fn turn(&mut self, now: Instant, before: u32) -> Instant {
        self.count(now);
        let wait = ((f64::from(before) + WHOLE - self.tokens) / self.rate).max(0.0);
        // In a pause no tokens come in, so what is left of it comes on top.
        let start = self.paused_until.map_or(now, |until| until.max(now));
        start + Duration::try_from_secs_f64(wait).unwrap_or(LONGEST_PAUSE)
    }

    /// Takes the turn of whoever is first in line.
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
            let until = now + pause.min(LONGEST_PAUSE);
            self.paused_until = Some(self.paused_until.map_or(until, |before| before.max(until)));
        }
        if self.learnt.is_none_or(|learnt| now >= learnt + ONE_LESSON) {
            self.rate = (self.rate * CUT).max(self.rates.least);
            self.tokens = 0.0;
            self.learnt = Some(now);
        }
    }

    pub(super) fn answered(&mut self, now: Instant) {
        // Answers to what went out before the lesson teach nothing.
        if self.learnt.is_none_or(|learnt| now >= learnt + ONE_LESSON) {
            self.count(now);
            self.rate = (self.rate + GAIN / self.rate).min(self.rates.most);
        }
    }

    pub(super) fn standing(&self, now: Instant) -> Standing {
        let paused = self.paused_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        Standing { rate: self.rate, usual: self.usual(now), paused }
    }

    /// The mean of the rate, what was long ago ever less.
    fn usual(&self, now: Instant) -> f64 {
        let passed = now.saturating_duration_since(self.counted).as_secs_f64() / USUAL.as_secs_f64();
        self.rate + (self.usual - self.rate) * (-passed).exp()
    }

    /// Fills up to `now`; nothing comes in during a pause.
    fn count(&mut self, now: Instant) {
        self.usual = self.usual(now);
        let from = self.paused_until.map_or(self.counted, |until| until.max(self.counted));
        let seconds = now.saturating_duration_since(from).as_secs_f64();
        self.tokens = (self.tokens + seconds * self.rate).min(self.rates.burst);
        self.counted = self.counted.max(now);
    }
}
