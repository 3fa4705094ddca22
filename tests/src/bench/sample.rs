//! Times and their percentiles.

use std::time::Duration;

/// The times of one thing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample(Vec<Duration>);

impl Sample {
    pub(crate) fn push(&mut self, time: Duration) {
        self.0.push(time);
    }

    /// The time that `percent` of all do not exceed, in milliseconds; nothing was measured: not a number.
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        // Nearest rank: a time that was measured, never one in between.
        let rank = (sorted.len() * percent).div_ceil(100).max(1);
        sorted.get(rank - 1).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
    }

    pub(crate) fn median(&self) -> f64 {
        self.percentile(50)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<Duration> for Sample {
    fn from_iter<T: IntoIterator<Item = Duration>>(times: T) -> Self {
        Self(times.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let sample: Sample = (1..=100).rev().map(Duration::from_millis).collect();
        assert_eq!([50, 90, 99, 100].map(|percent| sample.percentile(percent)), [50.0, 90.0, 99.0, 100.0]);
        assert_eq!(Sample::from_iter([Duration::from_millis(7)]).percentile(99), 7.0);
        assert!(Sample::default().median().is_nan());
    }
}
