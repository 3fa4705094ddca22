//! A stopwatch with laps: where a verb's time went. Laps of one name are one phase: a GC does the same for each of many
//! attachments.

use std::borrow::Cow;
use std::time::{Duration, Instant};

/// A phase: its name and its length in microseconds, all laps of that name together.
pub type Phase = (Cow<'static, str>, u64);

/// Laps since the start. One reading of the clock per lap, nothing else.
#[derive(Clone, Debug)]
pub struct Phases {
    start: Instant,
    lap: Instant,
    phases: Vec<Phase>,
}

impl Phases {
    /// Starts the clock of the first phase.
    pub fn start() -> Self {
        let now = Instant::now();
        Self { start: now, lap: now, phases: Vec::new() }
    }

    /// Ends the current lap and names it: the time since the last mark, or since the start.
    pub fn mark(&mut self, name: &'static str) {
        let now = Instant::now();
        let lap = micros(now - self.lap);
        match self.phases.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum = sum.saturating_add(lap),
            None => self.phases.push((Cow::Borrowed(name), lap)),
        }
        self.lap = now;
    }

    /// The phases so far, in the order they first ended.
    pub fn phases(&self) -> &[Phase] {
        &self.phases
    }

    /// The phases, for a record.
    pub fn into_phases(self) -> Vec<Phase> {
        self.phases
    }

    /// Microseconds since the start.
    pub fn total_micros(&self) -> u64 {
        micros(self.start.elapsed())
    }
}

impl Default for Phases {
    fn default() -> Self {
        Self::start()
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_are_summed_by_name_and_fit_into_the_total() {
        let mut phases = Phases::start();
        let until = Instant::now() + Duration::from_millis(2);
        while Instant::now() < until {}
        phases.mark("ipam");
        phases.mark("links");
        phases.mark("ipam");
        let total = phases.total_micros();
        let laps = phases.into_phases();
        assert_eq!(laps.iter().map(|(name, _)| name.as_ref()).collect::<Vec<_>>(), ["ipam", "links"]);
        assert!(laps[0].1 >= 2000, "{laps:?}");
        assert!(laps.iter().map(|(_, micros)| micros).sum::<u64>() <= total);
    }
}
