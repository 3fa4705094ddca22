//! Backoff after refused writes. An object that was not refused yet is tried at once. The refused objects of a profile share
//! one backoff, after which the [`PROBES`] that waited longest are tried; once one is accepted, so are all. A policy or quota that
//! refuses thousands of objects therefore costs a few requests, and delays no other profile. A changed spec is tried at once.
//!
//! Pure: the time is a parameter.

use std::collections::BTreeMap;

use backoff::Backoff;
use tokio::time::{Duration, Instant};

use crate::profile::plan::step::Step;

/// Between attempts at refused objects of a profile.
const RETRY: Backoff = Backoff { first: Duration::from_secs(1), cap: Duration::from_mins(2) };
/// How many refused objects of a profile are tried at once.
const PROBES: usize = 10;

/// The profiles that back off, by name.
#[derive(Debug, Default)]
pub(crate) struct RetryStates {
    profiles: BTreeMap<String, ProfileBackoff>,
    /// The last seen spec generation of each profile.
    generations: BTreeMap<String, Option<i64>>,
}

#[derive(Debug)]
struct ProfileBackoff {
    failures: u32,
    until: Instant,
    /// The refused objects, and when each was tried last.
    refused: BTreeMap<String, Instant>,
}

/// When a write failed, and the random number (0.0 to 1.0) for the jitter of its backoff.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailureTime {
    pub now: Instant,
    pub chance: f64,
}

impl RetryStates {
    /// Records the profiles and their spec generations. Objects of a profile with a new generation count as never refused.
    pub(crate) fn note_profiles(&mut self, generations: BTreeMap<String, Option<i64>>) {
        let before = std::mem::replace(&mut self.generations, generations);
        let is_same = |profile: &str| self.generations.get(profile) == before.get(profile);
        self.profiles.retain(|profile, _| is_same(profile));
    }

    /// The steps to try now, of all steps; and how many others of a profile wait. Forgets objects without a step.
    #[must_use]
    pub(crate) fn due(&mut self, steps: Vec<Step>, now: Instant) -> (Vec<Step>, BTreeMap<String, usize>) {
        let mut refused: BTreeMap<String, Vec<(Instant, &str)>> = BTreeMap::new();
        for step in &steps {
            let backoff = self.profiles.get(profile_of(step));
            if let Some(at) = backoff.and_then(|backoff| backoff.refused.get(step.object())) {
                refused.entry(profile_of(step).to_owned()).or_default().push((*at, step.object()));
            }
        }
        self.profiles.retain(|profile, backoff| {
            let Some(refusals) = refused.get_mut(profile) else { return false };
            refusals.sort_unstable();
            backoff.refused = refusals.iter().map(|(at, object)| ((*object).to_owned(), *at)).collect();
            refusals.truncate(if backoff.until <= now { PROBES } else { 0 });
            true
        });
        let probes: BTreeMap<String, Vec<String>> = refused
            .into_iter()
            .map(|(profile, probes)| (profile, probes.into_iter().map(|(_, object)| object.to_owned()).collect()))
            .collect();
        let mut waiting: BTreeMap<String, usize> = BTreeMap::new();
        let due = steps.into_iter().filter(|step| {
            let (profile, object) = (profile_of(step), step.object());
            let waits = self.profiles.get(profile).is_some_and(|backoff| backoff.refused.contains_key(object))
                && !probes.get(profile).is_some_and(|probes| probes.iter().any(|probe| probe == object));
            if waits {
                *waiting.entry(profile.to_owned()).or_default() += 1;
            }
            !waits
        });
        (due.collect(), waiting)
    }

    /// Records the results of a round. `chance` is in 0.0–1.0, for the jitter. Returns how often in a row profiles failed, where
    /// that is new.
    pub(crate) fn note_round<'s>(
        &mut self,
        outcomes: impl Iterator<Item = (&'s Step, bool)>,
        now: Instant,
        chance: fn() -> f64,
    ) -> BTreeMap<String, u32> {
        let mut rounds: BTreeMap<&str, Vec<(&str, bool)>> = BTreeMap::new();
        for (step, done) in outcomes {
            rounds.entry(profile_of(step)).or_default().push((step.object(), done));
        }
        let mut failures = BTreeMap::new();
        for (profile, outcomes) in rounds {
            if let Some(number) = self.note(profile, &outcomes, FailureTime { now, chance: chance() }) {
                failures.insert(profile.to_owned(), number);
            }
        }
        failures
    }

    /// Records the results of writes for a profile, by their objects. Returns how often in a row it failed, if that is new.
    pub(crate) fn note(&mut self, profile: &str, outcomes: &[(&str, bool)], at: FailureTime) -> Option<u32> {
        let known = self.profiles.get(profile);
        let is_over =
            outcomes.iter().any(|(object, done)| *done && known.is_some_and(|it| it.refused.contains_key(*object)));
        if is_over {
            self.profiles.remove(profile);
        }
        let mut refused = outcomes.iter().filter(|(_, done)| !done).peekable();
        refused.peek()?;
        let new = || ProfileBackoff { failures: 0, until: at.now, refused: BTreeMap::new() };
        let backoff = self.profiles.entry(profile.to_owned()).or_insert_with(new);
        backoff.refused.extend(refused.map(|(object, _)| ((*object).to_owned(), at.now)));
        if at.now < backoff.until {
            return None;
        }
        backoff.failures = backoff.failures.saturating_add(1);
        backoff.until = at.now + RETRY.delay(backoff.failures, at.chance);
        Some(backoff.failures)
    }

    /// Whether the objects of a profile that were refused back off now.
    pub(crate) fn has(&self, profile: &str, now: Instant) -> bool {
        self.profiles.get(profile).is_some_and(|backoff| now < backoff.until)
    }

    /// When the first backoff ends.
    pub(crate) fn next(&self, now: Instant) -> Option<Instant> {
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
    use crate::profile::plan::step::Target;
    use crate::profile::select::fate::RemovalReason;

    fn step(name: &str, profile: &str) -> Step {
        let object = Target { name: name.to_owned(), uid: None, version: None };
        Step::Delete { object, why: RemovalReason::NotInProfile(profile.to_owned()) }
    }

    fn steps(count: usize, profile: &str) -> Vec<Step> {
        (0..count).map(|number| step(&format!("{number:03}"), profile)).collect()
    }

    /// Plays steps that are refused or accepted, one reconcile per second: how many are tried in which second. Accepted ones are
    /// not tried again.
    fn play(
        states: &mut RetryStates,
        steps: &mut Vec<Step>,
        began: Instant,
        seconds: std::ops::Range<u64>,
        is_refused: impl Fn(&str) -> bool,
    ) -> Vec<(u64, usize)> {
        let mut tried = Vec::new();
        for second in seconds {
            let now = began + Duration::from_secs(second);
            let (due, waiting) = states.due(steps.clone(), now);
            assert_eq!(due.len() + waiting.values().sum::<usize>(), steps.len());
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
        let tried = play(&mut states, &mut all, began, 0..400, |_| true);
        let seconds = [1, 3, 7, 15, 31, 63, 127, 247, 367].map(|second| (second, PROBES));
        assert_eq!(tried, [&[(0, 1000)], &seconds[..]].concat());
        // There is room for one, then for all.
        let tried = play(&mut states, &mut all, began, 400..490, |name| name != "090");
        assert_eq!(tried, [(487, PROBES), (488, 999)]);
        assert_eq!(play(&mut states, &mut all, began, 490..493, |_| false), [(490, PROBES), (491, 999 - PROBES)]);
    }

    #[test]
    fn other_profiles_and_new_objects_do_not_wait() {
        let (mut states, began) = (RetryStates::default(), Instant::now());
        let mut all = steps(3, "p");
        play(&mut states, &mut all, began, 0..100, |_| true);
        all.extend([step("new", "p"), step("other", "q")]);
        assert_eq!(play(&mut states, &mut all, began, 100..101, |name| name < "a"), [(100, 2)]);
        assert_eq!(play(&mut states, &mut all, began, 101..140, |_| true), [(127, 3)]);
    }

    #[test]
    fn changed_spec_is_tried_at_once_and_backs_off_again() {
        let (mut states, began) = (RetryStates::default(), Instant::now());
        let mut all = steps(2, "p");
        states.note_profiles(BTreeMap::from([("p".to_owned(), Some(1))]));
        assert_eq!(play(&mut states, &mut all, began, 0..12, |_| true), [(0, 2), (1, 2), (3, 2), (7, 2)]);
        states.note_profiles(BTreeMap::from([("p".to_owned(), Some(2))]));
        assert_eq!(play(&mut states, &mut all, began, 12..20, |_| true), [(12, 2), (13, 2), (15, 2), (19, 2)]);
        // The profile was absent for a while.
        states.note_profiles(BTreeMap::new());
        assert_eq!(play(&mut states, &mut all, began, 20..21, |_| true), [(20, 2)]);
    }

    #[test]
    fn unwanted_object_is_forgotten() {
        let (mut states, began) = (RetryStates::default(), Instant::now());
        play(&mut states, &mut steps(2, "p"), began, 0..1, |_| true);
        let _ = states.due(steps(1, "p"), began);
        assert_eq!(states.profiles["p"].refused.len(), 1);
        let _ = states.due(Vec::new(), began);
        assert!(states.profiles.is_empty());
    }
}
