//! Backoff after failures. Each object has its own, so refusals of one profile do not delay others. If all writes of a
//! profile are refused (a policy, a quota), one object is tried for all, until it is accepted. If only a few stay refused,
//! each is retried by itself, because its own content is the likely cause. An object that was not refused yet is tried at
//! once; so are all objects of a profile whose spec changed.
//!
//! Pure: the time is a parameter.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use backoff::Backoff;
use tokio::time::Instant;

use crate::profile::plan::step::Step;

/// Between failures of the same object.
const RETRY: Backoff = Backoff { first: Duration::from_secs(1), cap: Duration::from_mins(1) };
/// Between attempts at one object of a profile whose objects were all refused.
const PROBE: Backoff = Backoff { first: Duration::from_secs(1), cap: Duration::from_mins(2) };

/// How many objects of a profile may each be retried by themselves: about two requests per second.
const FEW: usize = 100;

/// Objects and profiles that back off, by name.
#[derive(Debug, Default)]
pub struct RetryStates {
    objects: BTreeMap<String, ObjectBackoff>,
    profiles: BTreeMap<String, ObjectBackoff>,
    /// The last seen spec generation of each profile.
    generations: BTreeMap<String, Option<i64>>,
}

#[derive(Debug)]
struct ObjectBackoff {
    failures: u32,
    until: Instant,
}

/// The result of one round for a profile.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    is_taken: bool,
    refused: usize,
    /// Something was refused for the first time.
    is_first: bool,
    /// Something was accepted that had been refused before.
    is_over: bool,
}

/// When a write failed, and the random number (0.0 to 1.0) for the jitter of its backoff.
#[derive(Clone, Copy, Debug)]
pub struct Draw {
    /// The time.
    pub now: Instant,
    /// The random number.
    pub chance: f64,
}

impl RetryStates {
    /// Records the profiles and their spec generations. Objects of a profile with a new generation count as never refused.
    /// `steps` are all steps.
    pub fn note_profiles(&mut self, generations: BTreeMap<String, Option<i64>>, steps: &[Step]) {
        let before = std::mem::replace(&mut self.generations, generations);
        let is_other = |profile: &str| {
            let now = self.generations.get(profile);
            now.is_some() && now != before.get(profile)
        };
        self.profiles.retain(|profile, _| !is_other(profile));
        for step in steps.iter().filter(|step| is_other(profile_of(step))) {
            self.objects.remove(step.object());
        }
    }

    /// The steps to try now, of all steps; and how many others of a profile wait for one success. Drops objects that are no
    /// longer wanted.
    #[must_use]
    pub fn due(&mut self, steps: Vec<Step>, now: Instant) -> (Vec<Step>, BTreeMap<String, usize>) {
        let (objects, profiles): (BTreeSet<&str>, BTreeSet<&str>) =
            steps.iter().map(|step| (step.object(), profile_of(step))).unzip();
        self.objects.retain(|name, rest| now < rest.until + 2 * RETRY.cap || objects.contains(name.as_str()));
        self.profiles.retain(|name, rest| now < rest.until + 2 * PROBE.cap || profiles.contains(name.as_str()));
        let probes = self.probes(&steps, now);
        let mut waiting: BTreeMap<String, usize> = BTreeMap::new();
        let due = steps.into_iter().filter(|step| {
            let (profile, object) = (profile_of(step), step.object());
            let waits = self.profiles.contains_key(profile) && self.objects.contains_key(object);
            let waits = waits && probes.get(profile).is_none_or(|probe| probe != object);
            if waits {
                *waiting.entry(profile.to_owned()).or_default() += 1;
            }
            !waits && !self.has(object, now)
        });
        (due.collect(), waiting)
    }

    /// For each profile whose backoff is over, the object that waited longest.
    fn probes(&self, steps: &[Step], now: Instant) -> BTreeMap<String, String> {
        let mut probes: BTreeMap<&str, (Instant, &str)> = BTreeMap::new();
        for step in steps {
            let (profile, object) = (profile_of(step), step.object());
            let Some(rest) = self.objects.get(object).filter(|rest| rest.until <= now) else { continue };
            if self.profiles.get(profile).is_some_and(|rest| rest.until <= now) {
                let probe = probes.entry(profile).or_insert((rest.until, object));
                *probe = (*probe).min((rest.until, object));
            }
        }
        probes.into_iter().map(|(profile, (_, object))| (profile.to_owned(), object.to_owned())).collect()
    }

    /// Whether an object backs off now.
    #[must_use]
    pub fn has(&self, object: &str, now: Instant) -> bool {
        self.objects.get(object).is_some_and(|rest| now < rest.until)
    }

    /// Records the results of a round. `chance` is in 0.0–1.0, for the jitter.
    pub fn note_round<'s>(
        &mut self,
        outcomes: impl Iterator<Item = (&'s Step, bool)> + Clone,
        now: Instant,
        chance: fn() -> f64,
    ) {
        let mut rounds: BTreeMap<&str, Round> = BTreeMap::new();
        for (step, done) in outcomes.clone() {
            let round = rounds.entry(profile_of(step)).or_default();
            round.is_taken |= done;
            round.refused += usize::from(!done);
            let was_refused = self.objects.contains_key(step.object());
            round.is_first |= !done && !was_refused;
            round.is_over |= done && was_refused;
        }
        for (profile, round) in rounds {
            // Created objects have no steps any more: if all remaining ones were refused, the profile is refused as a whole.
            let begins = !round.is_taken && (round.is_first || round.refused > FEW);
            if round.is_over {
                self.profiles.remove(profile);
            } else if round.refused > 0 && (begins || self.profiles.contains_key(profile)) {
                ObjectBackoff::note(&mut self.profiles, profile, &PROBE, Draw { now, chance: chance() });
            }
        }
        for (step, done) in outcomes {
            self.note(step.object(), done, Draw { now, chance: chance() });
        }
    }

    /// Records the result of a write.
    pub fn note(&mut self, object: &str, done: bool, draw: Draw) {
        if done {
            self.objects.remove(object);
        } else {
            ObjectBackoff::note(&mut self.objects, object, &RETRY, draw);
        }
    }

    /// When the first backoff ends.
    #[must_use]
    pub fn next(&self, now: Instant) -> Option<Instant> {
        let all = self.objects.values().chain(self.profiles.values());
        all.map(|rest| rest.until).filter(|until| now < *until).min()
    }
}

impl ObjectBackoff {
    fn note(all: &mut BTreeMap<String, Self>, name: &str, backoff: &Backoff, draw: Draw) {
        let rest = all.entry(name.to_owned()).or_insert(Self { failures: 0, until: draw.now });
        rest.failures = rest.failures.saturating_add(1);
        rest.until = draw.now + backoff.delay(rest.failures, draw.chance);
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

    const SECOND: Duration = Duration::from_secs(1);

    fn step(name: &str, profile: &str) -> Step {
        let object = Target { name: name.to_owned(), uid: None, version: None };
        Step::Remove { object, why: RemovalReason::NotInProfile(profile.to_owned()) }
    }

    #[test]
    fn backoff_doubles_to_a_minute_and_ends_with_a_success() {
        let (mut rests, start) = (RetryStates::default(), Instant::now());
        let mut pauses = Vec::new();
        let mut now = start;
        for _ in 0..8 {
            rests.note("a", false, Draw { now, chance: 1.0 });
            let until = rests.next(now).unwrap();
            assert!(rests.has("a", now) && !rests.has("a", until) && !rests.has("b", now));
            pauses.push((until - now).as_secs());
            now = until;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        rests.note("a", true, Draw { now, chance: 1.0 });
        rests.note("a", false, Draw { now, chance: 0.0 });
        assert_eq!(rests.next(now), Some(now + RETRY.first / 2), "shortened by half at most");
    }

    #[test]
    fn an_unwanted_object_is_forgotten() {
        let (mut rests, now) = (RetryStates::default(), Instant::now());
        let steps = [step("a", "p"), step("b", "p")];
        rests.note_round(steps.iter().map(|step| (step, false)), now, || 1.0);
        let later = now + Duration::from_mins(10);
        assert_eq!(rests.next(later), None);
        let _ = rests.due(vec![step("a", "p")], later);
        assert_eq!(
            (rests.objects.keys().map(String::as_str).collect::<Vec<_>>(), rests.profiles.len()),
            (vec!["a"], 1)
        );
        let _ = rests.due(Vec::new(), later);
        assert!(rests.objects.is_empty() && rests.profiles.is_empty());
    }

    /// Plays steps that are refused or accepted, one reconcile per second: what is tried in which second. Accepted ones are
    /// not tried again.
    fn play(
        rests: &mut RetryStates,
        steps: &[Step],
        (began, seconds): (Instant, std::ops::Range<u32>),
        is_refused: impl Fn(&str) -> bool,
    ) -> Vec<(u32, Vec<String>)> {
        let (mut asked, mut steps) = (Vec::new(), steps.to_vec());
        for second in seconds {
            let now = began + second * SECOND;
            let (due, waiting) = rests.due(steps.clone(), now);
            assert!(due.len() + waiting.values().sum::<usize>() <= steps.len());
            if !due.is_empty() {
                asked.push((second, due.iter().map(|step| step.object().to_owned()).collect()));
            }
            rests.note_round(due.iter().map(|step| (step, !is_refused(step.object()))), now, || 1.0);
            steps.retain(|step| is_refused(step.object()) || !due.contains(step));
        }
        asked
    }

    fn seconds(asked: &[(u32, Vec<String>)]) -> Vec<(u32, usize)> {
        asked.iter().map(|(second, names)| (*second, names.len())).collect()
    }

    #[test]
    fn a_refused_profile_tries_one_object_at_a_time() {
        let (mut rests, began) = (RetryStates::default(), Instant::now());
        let steps: Vec<Step> = ["a", "b", "c"].map(|name| step(name, "p")).into();
        let asked = play(&mut rests, &steps, (began, 0..400), |_| true);
        let once = [1, 3, 7, 15, 31, 63, 127, 247, 367].map(|second| (second, 1));
        assert_eq!(seconds(&asked), [&[(0, 3)], &once[..]].concat());
        let turns: Vec<&str> = asked[1..7].iter().map(|(_, names)| names[0].as_str()).collect();
        assert_eq!(turns, ["a", "b", "c", "a", "b", "c"]);
        // The cause of the refusals is gone.
        let asked = play(&mut rests, &steps, (began, 400..490), |_| false);
        assert_eq!(seconds(&asked)[..2], [(487, 1), (488, 2)]);
    }

    #[test]
    fn a_changed_spec_is_tried_at_once_and_backs_off_again() {
        let (mut rests, began) = (RetryStates::default(), Instant::now());
        let steps = [step("a", "p"), step("b", "p"), step("c", "other"), step("d", "other")];
        let specs = |of_p| BTreeMap::from([("p".to_owned(), Some(of_p)), ("other".to_owned(), Some(1))]);
        let mut look = |of_p, seconds: std::ops::Range<u32>| {
            rests.note_profiles(specs(of_p), &steps);
            play(&mut rests, &steps, (began, seconds), |_| true)
                .iter()
                .map(|(second, names)| (*second, names.concat()))
                .collect::<Vec<_>>()
        };
        let asked =
            |all: &[(u32, &str)]| all.iter().map(|(second, names)| (*second, (*names).to_owned())).collect::<Vec<_>>();
        assert_eq!(look(1, 0..9), asked(&[(0, "abcd"), (1, "ac"), (3, "bd"), (7, "ac")]));
        assert_eq!(look(1, 9..12), []);
        assert_eq!(look(2, 12..30), asked(&[(12, "ab"), (13, "a"), (15, "bd"), (19, "a"), (27, "b")]));
        // The profile was absent for a while.
        rests.note_profiles(BTreeMap::new(), &[]);
        rests.note_profiles(specs(2), &steps);
        let (due, waiting) = rests.due(steps.to_vec(), began + 30 * SECOND);
        assert_eq!((due, waiting), (steps.to_vec(), BTreeMap::new()));
    }

    #[test]
    fn a_new_object_does_not_wait_for_refused_ones() {
        let (mut rests, began) = (RetryStates::default(), Instant::now());
        let mut steps: Vec<Step> = ["a", "b", "c"].map(|name| step(name, "p")).into();
        play(&mut rests, &steps, (began, 0..100), |_| true);
        steps.push(step("new", "p"));
        let asked = play(&mut rests, &steps, (began, 100..101), |name| name != "new");
        assert_eq!(asked, [(100, vec!["new".to_owned()])]);
        steps.pop();
        let asked = play(&mut rests, &steps, (began, 101..140), |_| true);
        assert_eq!(seconds(&asked), [(127, 1)]);
    }

    #[test]
    fn other_profiles_and_single_refusals_are_not_delayed() {
        let (mut rests, began) = (RetryStates::default(), Instant::now());
        let steps = [step("a", "p"), step("b", "p"), step("c", "p"), step("d", "other")];
        let asked = play(&mut rests, &steps, (began, 0..10), |name| name < "c");
        assert_eq!(seconds(&asked), [(0, 4), (1, 2), (3, 2), (7, 2)]);
        assert!(rests.profiles.is_empty());
    }

    #[test]
    fn many_refused_objects_back_off_despite_one_success() {
        let (mut rests, began) = (RetryStates::default(), Instant::now());
        let steps: Vec<Step> = (0..FEW + 3).map(|number| step(&format!("{number:03}"), "p")).collect();
        // A quota with room for one, and for another one later.
        let asked = play(&mut rests, &steps, (began, 0..10), |name| name != "000");
        assert_eq!(seconds(&asked), [(0, FEW + 3), (1, FEW + 2), (3, 1), (5, 1), (9, 1)]);
        let asked = play(&mut rests, &steps[1..], (began, 10..40), |name| name != "004");
        assert_eq!(seconds(&asked), [(17, 1), (18, FEW + 1), (22, 1), (24, 1), (28, 1), (36, 1)]);
    }
}
