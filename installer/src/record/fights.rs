//! How often somebody undid what we put there, and when the next repair may be made.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// So many repairs of one file within [`WINDOW`]; then we wait. Somebody who undoes ours as often as we write it does so
/// because of it: writing more often helps nobody, and every write makes the runtime load it all again.
const MOST: usize = 5;

/// Repairs older than this are forgotten.
pub(crate) const WINDOW: Duration = Duration::from_secs(600);

/// While it rests, a repair so often where the node is without any network for pods: whoever undid it may have ended since.
const PROBE: Duration = Duration::from_secs(60);

/// When repairs were made, in seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Fights(Vec<u64>);

impl Fights {
    /// Counts a repair.
    pub(crate) fn fought(&mut self, now: SystemTime) {
        let recent = self.recent(now);
        self.0.retain(|at| recent.contains(at));
        self.0.push(seconds(now));
    }

    /// Whether there is none.
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// When the next repair may be made; `None`: at once. Sooner where without it no pod has a network.
    pub(crate) fn rests(&self, now: SystemTime, without_it_no_network: bool) -> Option<Duration> {
        let recent = self.recent(now);
        // The one that has to be forgotten first.
        let first = recent.len().checked_sub(MOST).and_then(|at| recent.get(at))?;
        let after =
            |at: &u64, pause: Duration| pause.saturating_sub(Duration::from_secs(seconds(now).saturating_sub(*at)));
        let rest = after(first, WINDOW);
        let probe = recent.last().filter(|_| without_it_no_network).map_or(rest, |last| after(last, PROBE));
        Some(rest.min(probe)).filter(|rest| !rest.is_zero())
    }

    /// Repairs in the window, oldest first. Those of the future are of a clock that was wrong.
    pub(crate) fn recent(&self, now: SystemTime) -> Vec<u64> {
        let now = seconds(now);
        let mut recent: Vec<u64> = self.0.clone();
        recent.retain(|at| *at <= now && now - at < WINDOW.as_secs());
        recent.sort_unstable();
        recent
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn repairs_are_made_at_once_until_there_are_too_many() {
        let mut fights = Fights::default();
        for fight in 0..5 {
            assert_eq!(fights.rests(at(1000 + fight), false), None);
            fights.fought(at(1000 + fight));
        }
        assert_eq!(fights.rests(at(1005), false), Some(Duration::from_secs(595)));
        assert_eq!(fights.rests(at(1599), false), Some(Duration::from_secs(1)));
        assert_eq!(fights.rests(at(1600), false), None, "the first is forgotten");
        fights.fought(at(1600));
        assert_eq!(fights.rests(at(1600), false), Some(Duration::from_secs(1)), "the second follows a second later");
        assert_eq!(fights.0.len(), 5, "what is forgotten is not kept");
    }

    #[test]
    fn where_nothing_else_gives_pods_a_network_a_repair_a_minute_is_made_while_it_rests() {
        let mut fights = Fights::default();
        (0..5).for_each(|fight| fights.fought(at(1000 + fight)));
        assert_eq!(fights.rests(at(1010), true), Some(Duration::from_secs(54)));
        assert_eq!(fights.rests(at(1064), true), None);
        fights.fought(at(1064));
        assert_eq!(fights.rests(at(1065), true), Some(Duration::from_secs(59)));
        assert_eq!(fights.rests(at(1065), false), Some(Duration::from_secs(536)), "the second is of 1001");
    }

    #[test]
    fn a_clock_that_goes_back_does_not_make_it_rest_for_ever() {
        let mut fights = Fights::default();
        (0..9).for_each(|fight| fights.fought(at(90_000 + fight)));
        assert_eq!(fights.rests(at(1000), false), None);
    }
}
