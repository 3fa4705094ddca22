//! Pauses between attempts: they double up to a cap, and chance spreads them. Whatever tries again takes them from here. Chance is
//! a parameter there, so that tests know what comes; this is where it comes from.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// Pauses that double from `first` to `cap`, each shortened by chance to between half and all of it, so that those who
/// failed together do not ask together again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The first pause.
    pub first: Duration,
    /// The longest pause.
    pub cap: Duration,
}

impl Backoff {
    /// The pause after the given attempt (1 is the first). `chance` is in 0.0–1.0; anything else counts as the nearer.
    #[must_use]
    pub fn pause(&self, attempt: u32, chance: f64) -> Duration {
        let doublings = attempt.saturating_sub(1).min(31);
        let whole = self.first.saturating_mul(1 << doublings).min(self.cap);
        whole.mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0)
    }
}

/// A number in 0.0–1.0, for jitter.
#[must_use]
pub fn chance() -> f64 {
    f64::from(u32::try_from(random() >> 32).unwrap_or_default()) / f64::from(u32::MAX)
}

/// Any number. No secret may depend on it, and it costs no dependency: the standard library seeds each `RandomState` from the
/// system.
#[must_use]
pub fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_cap_and_never_fall_below_half() {
        let backoff = Backoff { first: Duration::from_millis(100), cap: Duration::from_millis(500) };
        let pauses = |chance| [1, 2, 3, 4, 40, u32::MAX].map(|attempt| backoff.pause(attempt, chance).as_millis());
        assert_eq!(pauses(1.0), [100, 200, 400, 500, 500, 500]);
        assert_eq!(pauses(0.0), [50, 100, 200, 250, 250, 250]);
        assert_eq!(backoff.pause(0, 7.0), backoff.pause(1, 1.0));
    }

    #[test]
    fn chance_stays_in_its_range_and_varies() {
        let values: Vec<f64> = (0..100).map(|_| chance()).collect();
        assert!(values.iter().all(|value| (0.0..=1.0).contains(value)));
        assert!(values.iter().any(|value| *value < 0.5) && values.iter().any(|value| *value > 0.5));
    }
}
