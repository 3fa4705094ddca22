//! Backoff after refused writes, one for each profile. After it, [`PROBES`] of the profile's writes are tried, other ones each
//! time; once one is accepted, so are all. A policy or quota that refuses thousands of objects therefore costs a few requests,
//! and delays no other profile. A changed spec is tried at once.
//!
//! Pure: the time is a parameter.

use std::collections::BTreeMap;

use backoff::Backoff;
use tokio::time::{Duration, Instant};

use crate::profile::plan::step::Step;

/// Between attempts at the writes of a profile.
const RETRY: Backoff = Backoff { first: Duration::from_secs(1), cap: Duration::from_mins(2) };
/// How many writes of a refused profile are tried at once.
const PROBES: usize = 10;

/// The profiles that back off, by name.
#[derive(Debug, Default)]
pub struct RetryStates {
    profiles: BTreeMap<String, ProfileBackoff>,
    /// The last seen spec generation of each profile.
    generations: BTreeMap<String, Option<i64>>,
}

#[derive(Debug)]
struct ProfileBackoff {
    /// How often in a row every write was refused.
    failures: u32,
    until: Instant,
}

impl RetryStates {
    /// Records the profiles and their spec generations. A profile with a new generation counts as never refused.
    pub fn note_profiles(&mut self, generations: BTreeMap<String, Option<i64>>) {
        let before = std::mem::replace(&mut self.generations, generations);
        let is_same = |profile: &str| self.generations.get(profile) == before.get(profile);
        self.profiles.retain(|profile, _| is_same(profile));
    }

    /// The steps to try now, of all steps. Forgets profiles without a step.
    #[must_use]
    pub fn due(&mut self, mut steps: Vec<Step>, now: Instant) -> Vec<Step> {
        let mut turns: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        for step in &steps {
            if let Some(backoff) = self.profiles.get(profile_of(step)) {
                let first = PROBES.saturating_mul(backoff.failures as usize);
                turns.entry(profile_of(step).to_owned()).or_insert((0, first)).0 += 1;
            }
        }
        self.profiles.retain(|profile, _| turns.contains_key(profile));
        steps.retain(|step| {
            let profile = profile_of(step);
            let (Some(backoff), Some((number, turn))) = (self.profiles.get(profile), turns.get_mut(profile)) else {
                return true;
            };
            *turn += 1;
            backoff.until <= now && (backoff.failures == 0 || *turn % *number < PROBES)
        });
        steps
    }

    /// Records the results of a round. `chance` is in 0.0–1.0, for the jitter. Returns how often in a row profiles failed.
    pub fn note_round<'s>(
        &mut self,
        outcomes: impl Iterator<Item = (&'s Step, bool)>,
        now: Instant,
        chance: fn() -> f64,
    ) -> BTreeMap<String, u32> {
        let mut rounds: BTreeMap<&str, Vec<bool>> = BTreeMap::new();
        for (step, is_accepted) in outcomes {
            rounds.entry(profile_of(step)).or_default().push(is_accepted);
        }
        rounds.into_iter().map(|(profile, all)| (profile.to_owned(), self.note(profile, &all, now, chance()))).collect()
    }

    /// Records which writes for a profile were accepted. Returns how often in a row it failed.
    pub fn note(&mut self, profile: &str, accepted: &[bool], now: Instant, chance: f64) -> u32 {
        let before = self.profiles.remove(profile).map_or(0, |backoff| backoff.failures);
        if !accepted.contains(&false) {
            return 0;
        }
        let failures = if accepted.contains(&true) { 0 } else { before.saturating_add(1) };
        let until = now + RETRY.delay(failures.max(1), chance);
        self.profiles.insert(profile.to_owned(), ProfileBackoff { failures, until });
        failures.max(1)
    }

    /// Whether a profile backs off now.
    pub fn has(&self, profile: &str, now: Instant) -> bool {
        self.profiles.get(profile).is_some_and(|backoff| now < backoff.until)
    }

    /// When the first backoff ends.
    pub fn next(&self, now: Instant) -> Option<Instant> {
        self.profiles.values().map(|backoff| backoff.until).filter(|until| now < *until).min()
    }
}

/// A step without a profile has no name.
fn profile_of(step: &Step) -> &str {
    step.profile().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::plan::removal::RemovalReason;
    use crate::profile::plan::step::Target;

    fn step(name: &str, profile: &str) -> Step {
        let object = Target { name: name.to_owned(), uid: None, version: None };
        Step::Remove { object, why: RemovalReason::NotInProfile(profile.to_owned()) }
    }

    fn steps(count: usize, profile: &str) -> Vec<Step> {
        (0..count).map(|number| step(&format!("{number:03}"), profile)).collect()
    }

    /// Plays steps that are refused or accepted, one reconcile per second: how many are tried in which second. Accepted ones are
    /// not tried again.
    fn play(
        states: &mut RetryStates,
        steps: &mut Vec<Step>,
        (began, seconds): (Instant, std::ops::Range<u64>),
        is_refused: impl Fn(&str) -> bool,
    ) -> Vec<(u64, usize)> {
        let mut tried = Vec::new();
        for second in seconds {
            let now = began + Duration::from_secs(second);
            let due = states.due(steps.clone(), now);
            if !due.is_empty() {
                tried.push((second, due.len()));
            }
            states.note_round(due.iter().map(|step| (step, !is_refused(step.object()))), now, || 1.0);
            steps.retain(|step| is_refused(step.object()) || !due.contains(step));
        }
        tried
    }

    #[test]
    fn refused_profile_tries_ten_objects_until_one_is_accepted() {
        let (mut states, began) = (RetryStates::default(), Instant::now());
        let mut all = steps(1000, "p");
        let tried = play(&mut states, &mut all, (began, 0..400), |_| true);
        let seconds = [1, 3, 7, 15, 31, 63, 127, 247, 367].map(|second| (second, PROBES));
        assert_eq!(tried, [&[(0, 1000)], &seconds[..]].concat());
        // There is room for one, then for all.
        let tried = play(&mut states, &mut all, (began, 400..490), |name| name != "900");
        assert_eq!(tried, [(487, PROBES), (488, 999), (489, PROBES)]);
        assert_eq!(play(&mut states, &mut all, (began, 490..493), |_| false), [(491, PROBES), (492, 999 - PROBES)]);
    }

    #[test]
    fn every_refused_object_gets_its_turn() {
        let (mut states, began) = (RetryStates::default(), Instant::now());
        // Only the last one to be tried would be accepted.
        for accepted in 0..35 {
            let mut all = steps(35, "p");
            play(&mut states, &mut all, (began, 0..1), |_| true);
            play(&mut states, &mut all, (began, 1..20), |name| name != format!("{accepted:03}"));
            assert_eq!(all.len(), 34, "{accepted}");
            let _ = states.due(Vec::new(), began);
            assert!(states.profiles.is_empty(), "unwanted ones are forgotten");
        }
    }

    #[test]
    fn other_profiles_do_not_wait() {
        let (mut states, began) = (RetryStates::default(), Instant::now());
        let mut all = steps(3, "p");
        play(&mut states, &mut all, (began, 0..100), |_| true);
        all.extend([step("new", "p"), step("other", "q")]);
        assert_eq!(play(&mut states, &mut all, (began, 100..128), |name| name < "a"), [(100, 1), (127, 4)]);
    }

    #[test]
    fn changed_spec_is_tried_at_once_and_backs_off_again() {
        let (mut states, began) = (RetryStates::default(), Instant::now());
        let mut all = steps(2, "p");
        states.note_profiles(BTreeMap::from([("p".to_owned(), Some(1))]));
        assert_eq!(play(&mut states, &mut all, (began, 0..12), |_| true), [(0, 2), (1, 2), (3, 2), (7, 2)]);
        states.note_profiles(BTreeMap::from([("p".to_owned(), Some(2))]));
        assert_eq!(play(&mut states, &mut all, (began, 12..20), |_| true), [(12, 2), (13, 2), (15, 2), (19, 2)]);
        // The profile was absent for a while.
        states.note_profiles(BTreeMap::new());
        assert_eq!(play(&mut states, &mut all, (began, 20..21), |_| true), [(20, 2)]);
    }
}
