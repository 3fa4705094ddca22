//! The wait before a retry, which doubles up to a cap, with jitter; and a rate limit. Every retry loop uses it. Time and chance
//! are parameters, so that tests are deterministic; [`chance`] is the source of chance.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

/// Delays that double from `first` to `cap`. Jitter shortens each by up to half, so that clients that failed at the same time
/// do not retry at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The delay after the first failure.
    pub first: Duration,
    /// The longest delay, before jitter.
    pub cap: Duration,
}

/// Limits of one request, all of its attempts together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The most time for one attempt, connecting and reading the answer included.
    pub timeout: Duration,
    /// The most attempts, at least one.
    pub attempts: u32,
    /// The backoff between attempts.
    pub backoff: Backoff,
    /// The most time for all attempts and waits between them.
    pub deadline: Duration,
}

impl Backoff {
    /// The delay after the given attempt (1 is the first). `chance` is clamped to 0.0–1.0.
    pub fn delay(&self, attempt: u32, chance: f64) -> Duration {
        let doublings = attempt.saturating_sub(1).min(31);
        let longest = self.first.saturating_mul(1 << doublings).min(self.cap);
        longest.mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0)
    }
}

/// A rate limit: some at once, then a steady rate.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    burst: f64,
    per_second: f64,
    tokens: f64,
    filled: Instant,
}

impl TokenBucket {
    /// A full bucket of `burst` tokens, refilled with so many per second.
    pub const fn new(burst: f64, per_second: f64, now: Instant) -> Self {
        Self { burst, per_second, tokens: burst, filled: now }
    }

    /// Whether there is a token.
    pub fn has_token(&mut self, now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + elapsed * self.per_second).min(self.burst);
        self.filled = now;
        self.tokens >= 1.0
    }

    /// Takes a token, if there is one.
    pub fn take(&mut self, now: Instant) -> bool {
        let has_token = self.has_token(now);
        if has_token {
            self.tokens -= 1.0;
        }
        has_token
    }
}

/// A random number in 0.0–1.0, for jitter.
pub fn chance() -> f64 {
    f64::from(u32::try_from(random() >> 32).unwrap_or_default()) / f64::from(u32::MAX)
}

/// A random number, not for secrets. It needs no dependency: the standard library seeds each `RandomState` from the system.
pub fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_doubles_up_to_cap_and_jitter_halves_at_most() {
        let backoff = Backoff { first: Duration::from_millis(100), cap: Duration::from_millis(500) };
        let delays = |chance| [1, 2, 3, 4, 40, u32::MAX].map(|attempt| backoff.delay(attempt, chance).as_millis());
        assert_eq!(delays(1.0), [100, 200, 400, 500, 500, 500]);
        assert_eq!(delays(0.0), [50, 100, 200, 250, 250, 250]);
        assert_eq!(backoff.delay(0, 7.0), backoff.delay(1, 1.0));
    }

    #[test]
    fn bucket_allows_a_burst_then_the_rate() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(3.0, 0.5, start);
        let mut taken = |second| (0..10).filter(|_| bucket.take(start + Duration::from_secs(second))).count();
        assert_eq!([0, 1, 2, 6, 1000].map(&mut taken), [3, 0, 1, 2, 3]);
    }

    #[test]
    fn chance_is_in_range_and_varies() {
        let values: Vec<f64> = (0..100).map(|_| chance()).collect();
        assert!(values.iter().all(|value| (0.0..=1.0).contains(value)));
        assert!(values.iter().any(|value| *value < 0.5) && values.iter().any(|value| *value > 0.5));
    }
}
