//! One look at all profiles: what is to be written, and what is to be told. With ten thousand nodes this takes so long that it
//! is done beside the thread on which all else runs: there, the lease is renewed.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use api::{VnicProfile, VnicProfileStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use crate::cluster::events::Events;
use crate::cluster::store::Store;
use crate::profile::plan::plan;
use crate::profile::plan::removal::Grace;
use crate::profile::plan::removal::Unwanted;
use crate::profile::plan::step::Step;
use crate::profile::report::changes::Changes;
use crate::profile::report::failures::Quiet;
use crate::profile::report::problems::Problems;
use crate::profile::report::status;
use crate::profile::retry_states::RetryStates;
use crate::profile::select::observed::Observed;
use crate::profile::select::selection::select;
use crate::report::metrics::Metrics;

/// What was made is told by the watch within this time, or not at all.
const TOLD_BY: Duration = Duration::from_mins(5);

/// What it looks at, and where it tells.
#[derive(Clone, Debug)]
pub(super) struct Look {
    /// What there is.
    pub(super) store: Arc<Store>,
    /// What is counted.
    pub(super) metrics: Arc<Metrics>,
    /// Where news go.
    pub(super) events: Events,
    /// For how long a node that is not selected any more keeps its VNICs.
    pub(super) grace: Duration,
}

/// What remains from one look to the next. All of it may be lost.
#[derive(Debug, Default)]
pub(super) struct Memory {
    unwanted: Unwanted,
    problems: Problems,
    /// Objects that were made and that the watch has not told yet, and when. Their profiles are not let go.
    pub(super) made: BTreeMap<String, Instant>,
    /// What was refused, or not answered.
    pub(super) rests: RetryStates,
    /// Profiles whose failures were told of.
    pub(super) quiet: Quiet,
    /// What was written of profiles' conditions.
    pub(super) changes: Changes,
}

/// What is to be done.
#[derive(Debug)]
pub(super) struct Decided {
    /// Writes.
    pub(super) steps: Vec<Step>,
    /// How many more there are of a profile, by its name, once one of it is not refused.
    pub(super) waiting: BTreeMap<String, usize>,
    /// By name.
    pub(super) profiles: BTreeMap<String, Told>,
    /// When to look again although nothing changed.
    pub(super) next: Option<Instant>,
}

/// A profile.
#[derive(Debug)]
pub(super) struct Told {
    /// As it was read.
    pub(super) profile: Arc<VnicProfile>,
    /// Its status, where it is another than it has.
    pub(super) status: Option<VnicProfileStatus>,
}

impl Look {
    /// Decides, and leaves the thread to others meanwhile.
    pub(super) async fn decide_aside(&self, memory: Memory) -> (Decided, Memory) {
        let (look, now) = (self.clone(), Instant::now());
        let decided = spawn_blocking(move || look.decide(memory, now)).await;
        match decided.map_err(tokio::task::JoinError::try_into_panic) {
            Ok(decided) => decided,
            Err(Ok(panic)) => resume_unwind(panic),
            // The runtime ends, and who waits with it.
            Err(Err(_)) => std::future::pending().await,
        }
    }

    fn decide(&self, mut memory: Memory, now: Instant) -> (Decided, Memory) {
        let began = std::time::Instant::now();
        let observed = Observed::of(&self.store);
        let selections = select(&observed);
        let mut plan = plan(&observed, &selections, Grace { unwanted: &memory.unwanted, period: self.grace, now });
        memory.made.retain(|_, made| now.saturating_duration_since(*made) < TOLD_BY);
        for object in &observed.attachments {
            memory.made.remove(&object.name_any());
        }
        plan.steps.retain(|step| !matches!(step, Step::LetGo(profile) if memory.has_made(&profile.name)));
        let generations = observed.profiles.iter().map(|profile| (profile.name_any(), profile.metadata.generation));
        memory.rests.note_profiles(generations.collect(), &plan.steps);
        let (steps, waiting) = memory.rests.due(std::mem::take(&mut plan.steps), now);
        memory.problems.tell(&plan.problems, &observed.nodes, &self.events);
        let sums = plan.reports.iter().map(|(profile, report)| (*profile, status::summary(report)));
        self.metrics.abandoned(plan.abandoned);
        self.metrics.looked(sums, plan.problems.iter().map(|problem| problem.reason), began.elapsed());
        let told = observed.profiles.iter().filter_map(|profile| {
            let report = plan.reports.get(profile.metadata.name.as_deref()?)?;
            let status = status::changed(report, Time(Timestamp::now()));
            Some((profile.name_any(), Told { profile: profile.clone(), status }))
        });
        let decided = Decided { profiles: told.collect(), steps, waiting, next: plan.next };
        memory.unwanted = plan.unwanted;
        (decided, memory)
    }
}

impl Memory {
    /// Whether something was made from a profile that the watch has not told yet.
    fn has_made(&self, profile: &str) -> bool {
        self.made.keys().any(|name| name.split('.').next() == Some(profile))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::task::yield_now;

    use super::*;
    use crate::profile::retry_states::Draw;
    use crate::profile::sample::store;

    fn look(nodes: u32) -> Look {
        let metrics = Arc::new(Metrics::default());
        let (events, _) = Events::new(metrics.clone());
        Look { store: store(nodes), metrics, events, grace: Duration::ZERO }
    }

    /// On one thread, as the controller has: what is decided in one piece on it gives others no turn.
    #[tokio::test(flavor = "current_thread")]
    async fn others_have_their_turns_while_ten_thousand_nodes_are_decided_on() {
        let (look, turns) = (look(10_000), Arc::new(AtomicUsize::new(0)));
        let other = tokio::spawn({
            let turns = turns.clone();
            async move {
                loop {
                    turns.fetch_add(1, Ordering::SeqCst);
                    yield_now().await;
                }
            }
        });
        yield_now().await;
        let before = turns.load(Ordering::SeqCst);
        let began = std::time::Instant::now();
        let (decided, _) = look.decide_aside(Memory::default()).await;
        let had = turns.load(Ordering::SeqCst) - before;
        other.abort();
        println!("{} steps in {:?}, {had} turns of another task", decided.steps.len(), began.elapsed());
        assert_eq!(decided.steps.len(), 10_000);
        assert!(had > 10, "{had}");
    }

    #[test]
    fn what_was_refused_is_left_alone_and_nothing_else() {
        let (look, now) = (look(3), Instant::now());
        let steps = |memory: Memory, now: Instant| {
            let (decided, memory) = look.decide(memory, now);
            (decided.steps.iter().map(|step| step.object().to_owned()).collect::<Vec<_>>(), memory)
        };
        let (all, mut memory) = steps(Memory::default(), now);
        memory.rests.note(&all[1], false, Draw { now, chance: 1.0 });
        let (others, memory) = steps(memory, now + Duration::from_millis(999));
        assert_eq!(others, [all[0].clone(), all[2].clone()]);
        assert_eq!(steps(memory, now + Duration::from_secs(1)).0, all);
    }

    #[test]
    fn what_was_refused_of_a_spec_is_not_left_alone_when_it_is_another() {
        let (look, now) = (look(3), Instant::now());
        let (first, mut memory) = look.decide(Memory::default(), now);
        memory.rests.note_round(first.steps.iter().map(|step| (step, false)), now, || 1.0);
        let (same, memory) = look.decide(memory, now);
        assert_eq!((same.steps, same.waiting), (Vec::new(), BTreeMap::from([("pool".to_owned(), 3)])));
        let mut profile = VnicProfile::clone(look.store.profiles().iter().next().unwrap());
        profile.metadata.generation = Some(2);
        look.store.profiles_mut().apply(kube::core::DeserializeGuard(Ok(profile)));
        let (other, _) = look.decide(memory, now);
        assert_eq!((other.steps, other.waiting), (first.steps, BTreeMap::new()));
    }

    #[test]
    fn a_profile_is_not_let_go_while_what_was_made_of_it_may_still_be_told() {
        let look = look(0);
        let mut profile = VnicProfile::clone(look.store.profiles().iter().next().unwrap());
        profile.metadata.deletion_timestamp = Some(Time(Timestamp::from_second(1_000_000).unwrap()));
        look.store.profiles_mut().apply(kube::core::DeserializeGuard(Ok(profile)));
        let now = Instant::now();
        let lets_go = |memory: Memory, now: Instant| {
            let (decided, memory) = look.decide(memory, now);
            (decided.steps.iter().any(|step| matches!(step, Step::LetGo(_))), memory)
        };
        let made = |name: &str| Memory { made: [(name.to_owned(), now)].into(), ..Memory::default() };
        let (lost, memory) = lets_go(made("pool.one.0123456789ab"), now);
        assert!(!lost, "the object would be nobody's");
        assert!(lets_go(memory, now + TOLD_BY).0, "it was never told");
        assert!(lets_go(made("pool-2.one.0123456789ab"), now).0, "another profile's");
    }
}
