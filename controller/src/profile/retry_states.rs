//! Pauses after failures. One per object, so that what the API server refuses of one profile does not keep others waiting; and one
//! per profile of which all was refused: by a policy or a quota ten thousand objects are refused as one is, so one asks for all,
//! until it is taken. A few that stay refused where others were made ask each for itself: it is their own matter, most likely. An
//! object that was not refused yet is asked for at once all the same: why others were may not be about it. So is all of a profile
//! whose spec is another than what was refused.
//! Pure; every function is told the time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use backoff::Backoff;
use tokio::time::Instant;

use crate::profile::plan::step::Step;

/// Between failures of the same object.
const RETRY: Backoff = Backoff { first: Duration::from_secs(1), cap: Duration::from_mins(1) };
/// Between attempts at one object of a profile of which all was refused.
const PROBE: Backoff = Backoff { first: Duration::from_secs(1), cap: Duration::from_mins(2) };

/// So many of a profile may be refused again and again, each by itself: some two requests per second.
const FEW: usize = 100;

/// Objects and profiles that are left alone for a while, by name.
#[derive(Debug, Default)]
pub struct RetryStates {
    objects: BTreeMap<String, RetryState>,
    profiles: BTreeMap<String, RetryState>,
    /// Of each profile that there is, which spec was seen last.
    generations: BTreeMap<String, Option<i64>>,
}

#[derive(Debug)]
struct RetryState {
    failures: u32,
    until: Instant,
}

/// How a round went for a profile.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    is_taken: bool,
    refused: usize,
    /// Something was refused that had not been before.
    is_first: bool,
    /// Something was taken that had been refused before.
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
    /// Takes note of the profiles that there are, with the generation of each one's spec. Of one that has another than before, whatever
    /// is among these steps, which are all that there are, has never been refused.
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

    /// Of these steps, which are all that there are, those that are to be taken now; and how many others of a profile wait for one
    /// of it to be taken. Forgets what nobody asks for any more.
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

    /// Of each profile that has rested long enough, the object that was left alone for longest.
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

    /// Whether an object is to be left alone now.
    #[must_use]
    pub fn has(&self, object: &str, now: Instant) -> bool {
        self.objects.get(object).is_some_and(|rest| now < rest.until)
    }

    /// Notes how the steps of a round went. `chance` is in 0.0–1.0, for the jitter.
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
            // Those that are made are no steps any more: what is left of a profile then is refused altogether, and is so again.
            let begins = !round.is_taken && (round.is_first || round.refused > FEW);
            if round.is_over {
                self.profiles.remove(profile);
            } else if round.refused > 0 && (begins || self.profiles.contains_key(profile)) {
                RetryState::note(&mut self.profiles, profile, &PROBE, Draw { now, chance: chance() });
            }
        }
        for (step, done) in outcomes {
            self.note(step.object(), done, Draw { now, chance: chance() });
        }
    }

    /// Notes how a write went.
    pub fn note(&mut self, object: &str, done: bool, draw: Draw) {
        if done {
            self.objects.remove(object);
        } else {
            RetryState::note(&mut self.objects, object, &RETRY, draw);
        }
    }

    /// When the first rest ends.
    #[must_use]
    pub fn next(&self, now: Instant) -> Option<Instant> {
        let all = self.objects.values().chain(self.profiles.values());
        all.map(|rest| rest.until).filter(|until| now < *until).min()
    }
}

impl RetryState {
    fn note(all: &mut BTreeMap<String, Self>, name: &str, backoff: &Backoff, draw: Draw) {
        let rest = all.entry(name.to_owned()).or_insert(Self { failures: 0, until: draw.now });
        rest.failures = rest.failures.saturating_add(1);
        rest.until = draw.now + backoff.delay(rest.failures, draw.chance);
    }
}

/// What is for none has no name.
fn profile_of(step: &Step) -> &str {
    step.profile().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::plan::removal::Why;
    use crate::profile::plan::step::Target;

    const SECOND: Duration = Duration::from_secs(1);

    fn step(name: &str, profile: &str) -> Step {
        let object = Target { name: name.to_owned(), uid: None, version: None };
        Step::Remove { object, why: Why::NotInProfile(profile.to_owned()) }
    }

    #[test]
    fn pauses_double_up_to_a_minute_and_end_with_a_success() {
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
    fn an_object_that_nobody_asks_for_any_more_is_forgotten_and_no_other() {
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

    /// Plays steps that are refused or not, a look each second: what is asked for at each, by its second, where something is. What
    /// was taken is not asked for any more.
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
    fn of_a_profile_of_which_all_is_refused_one_asks_for_all_and_each_has_its_turn() {
        let (mut rests, began) = (RetryStates::default(), Instant::now());
        let steps: Vec<Step> = ["a", "b", "c"].map(|name| step(name, "p")).into();
        let asked = play(&mut rests, &steps, (began, 0..400), |_| true);
        let once = [1, 3, 7, 15, 31, 63, 127, 247, 367].map(|second| (second, 1));
        assert_eq!(seconds(&asked), [&[(0, 3)], &once[..]].concat());
        let turns: Vec<&str> = asked[1..7].iter().map(|(_, names)| names[0].as_str()).collect();
        assert_eq!(turns, ["a", "b", "c", "a", "b", "c"]);
        // What refused them is gone.
        let asked = play(&mut rests, &steps, (began, 400..490), |_| false);
        assert_eq!(seconds(&asked)[..2], [(487, 1), (488, 2)]);
    }

    #[test]
    fn what_was_refused_of_another_spec_is_asked_for_at_once_and_rests_anew() {
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
        // It was not there for a while.
        rests.note_profiles(BTreeMap::new(), &[]);
        rests.note_profiles(specs(2), &steps);
        let (due, waiting) = rests.due(steps.to_vec(), began + 30 * SECOND);
        assert_eq!((due, waiting), (steps.to_vec(), BTreeMap::new()));
    }

    #[test]
    fn an_object_that_was_not_refused_yet_does_not_wait_and_lets_no_others_go() {
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
    fn other_profiles_and_what_is_refused_alone_have_no_such_rest() {
        let (mut rests, began) = (RetryStates::default(), Instant::now());
        let steps = [step("a", "p"), step("b", "p"), step("c", "p"), step("d", "other")];
        let asked = play(&mut rests, &steps, (began, 0..10), |name| name < "c");
        assert_eq!(seconds(&asked), [(0, 4), (1, 2), (3, 2), (7, 2)]);
        assert!(rests.profiles.is_empty());
    }

    #[test]
    fn many_that_stay_refused_have_such_a_rest_though_one_was_taken_at_first_or_later() {
        let (mut rests, began) = (RetryStates::default(), Instant::now());
        let steps: Vec<Step> = (0..FEW + 3).map(|number| step(&format!("{number:03}"), "p")).collect();
        // A quota that has room for one, and for another one later.
        let asked = play(&mut rests, &steps, (began, 0..10), |name| name != "000");
        assert_eq!(seconds(&asked), [(0, FEW + 3), (1, FEW + 2), (3, 1), (5, 1), (9, 1)]);
        let asked = play(&mut rests, &steps[1..], (began, 10..40), |name| name != "004");
        assert_eq!(seconds(&asked), [(17, 1), (18, FEW + 1), (22, 1), (24, 1), (28, 1), (36, 1)]);
    }
}
