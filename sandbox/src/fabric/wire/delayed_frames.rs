//! Frames that the policy's noise holds back: each for a time of its own, so that some overtake others.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::fabric::Outgoing;

/// Frames by the time at which they are due.
#[derive(Debug, Default)]
pub(super) struct DelayedFrames {
    frames: BTreeMap<(Duration, u64), Outgoing>,
    /// Of all frames so far: two that are due at once keep their order.
    number: u64,
}

impl DelayedFrames {
    /// Holds a frame for at most `longest`.
    pub(super) fn add(&mut self, now: Duration, longest: Duration, frame: Outgoing) {
        self.number += 1;
        // SplitMix64's last step: the same times in every run.
        let mixed = self.number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32;
        let share = u32::try_from(mixed).map_or(0.0, |mixed| f64::from(mixed) / f64::from(u32::MAX));
        self.frames.insert((now + longest.mul_f64(share), self.number), frame);
    }

    /// The frames that are due.
    pub(super) fn due(&mut self, now: Duration) -> Vec<Outgoing> {
        let later = self.frames.split_off(&(now, u64::MAX));
        std::mem::replace(&mut self.frames, later).into_values().collect()
    }

    /// When the next one is due.
    pub(super) fn next(&self) -> Option<Duration> {
        self.frames.keys().next().map(|(due, _)| *due)
    }
}
