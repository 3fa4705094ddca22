//! How long and how often a question is asked.

use std::time::Duration;

/// Limits of one question to the metadata service, all of its attempts together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The most time for one attempt, connecting and reading the reply included.
    pub timeout: Duration,
    /// The most attempts, at least one.
    pub attempts: u32,
    /// The pauses between them.
    pub backoff: Backoff,
    /// The most time for all attempts and pauses together.
    pub deadline: Duration,
}

/// Pauses that double from `first` to `cap`, each shortened by chance to between half and all of it, so that the nodes
/// of a pool that booted together do not ask together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The first pause.
    pub first: Duration,
    /// The longest pause.
    pub cap: Duration,
}

/// Oracle advises up to 3 retries, a 30 s timeout and exponential backoff; a node waits for this before its first pod,
/// so an attempt gets 5 s here (the service answers in milliseconds or not at all) and there are more of them.
impl Default for Policy {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(5),
            attempts: 6,
            backoff: Backoff { first: Duration::from_millis(250), cap: Duration::from_secs(8) },
            deadline: Duration::from_secs(30),
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
        let pauses = |chance| [1, 2, 3, 4, 40, u32::MAX].map(|attempt| backoff.pause(attempt, chance).as_millis());
        assert_eq!(pauses(1.0), [100, 200, 400, 500, 500, 500]);
        assert_eq!(pauses(0.0), [50, 100, 200, 250, 250, 250]);
        assert_eq!(backoff.pause(0, 7.0), backoff.pause(1, 1.0));
    }
}
