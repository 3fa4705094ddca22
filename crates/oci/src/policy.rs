//! How long and how often a call is attempted.

use std::time::Duration;

/// Limits of one call, all of its attempts together. A list is one call per page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The most time for one attempt, connecting and reading the answer included.
    pub timeout: Duration,
    /// The most attempts, at least one.
    pub attempts: u32,
    /// The pauses between them.
    pub backoff: Backoff,
    /// The most time for all attempts, pauses and waits for the budget together.
    pub deadline: Duration,
}

/// Pauses that double from `first` to `cap`, each shortened by chance to between half and all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The first pause.
    pub first: Duration,
    /// The longest pause.
    pub cap: Duration,
}

/// Oracle's SDKs: eight attempts, doubling, 30 s at most. A minute in all, since a reconciler that gets an error shows
/// it and comes back by itself.
impl Default for Policy {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(20),
            attempts: 8,
            backoff: Backoff { first: Duration::from_millis(500), cap: Duration::from_secs(30) },
            deadline: Duration::from_mins(1),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_cap_and_never_fall_below_half() {
        let backoff = Backoff { first: Duration::from_millis(100), cap: Duration::from_millis(500) };
        let pauses = |chance| [1, 2, 3, 4, u32::MAX].map(|attempt| backoff.pause(attempt, chance).as_millis());
        assert_eq!(pauses(1.0), [100, 200, 400, 500, 500]);
        assert_eq!(pauses(0.0), [50, 100, 200, 250, 250]);
    }
}
