//! One reconcile of all profiles: what to write, and what to report. With ten thousand nodes it takes so long that it runs
//! outside the main thread, which renews the Lease.

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
use crate::profile::plan::removal::UnwantedObjects;
use crate::profile::plan::step::Step;
use crate::profile::report::changes::Changes;
use crate::profile::report::failures::ReportHistory;
use crate::profile::report::problems::Problems;
use crate::profile::report::status;
use crate::profile::retry_states::RetryStates;
use crate::profile::select::observed::Observed;
use crate::profile::select::selection::select;
use crate::report::metrics::Metrics;

/// The watch reports a created object within this time, or never.
const TOLD_BY: Duration = Duration::from_mins(5);

/// Its inputs and outputs.
#[derive(Clone, Debug)]
pub(super) struct ProfileContext {
    /// The objects.
    pub(super) store: Arc<Store>,
    /// The metrics.
    pub(super) metrics: Arc<Metrics>,
    /// The Events.
    pub(super) events: Events,
    /// How long a node that is no longer selected keeps its VNICs.
    pub(super) grace: Duration,
}

/// What is kept between two reconciles. All of it may be lost.
#[derive(Debug, Default)]
pub(super) struct Memory {
    unwanted: UnwantedObjects,
    problems: Problems,
    /// Objects that were created and that the watch has not reported yet, and when. Their profiles keep the finalizer.
    pub(super) made: BTreeMap<String, Instant>,
    /// Objects whose writes were refused or not answered.
    pub(super) rests: RetryStates,
    /// Profiles whose failures were reported.
    pub(super) quiet: ReportHistory,
    /// The written conditions of profiles.
    pub(super) changes: Changes,
}

/// What to do.
#[derive(Debug)]
pub(super) struct Decision {
    /// Writes.
    pub(super) steps: Vec<Step>,
    /// How many more writes a profile has, by its name, once one of it succeeds.
    pub(super) waiting: BTreeMap<String, usize>,
    /// By name.
    pub(super) profiles: BTreeMap<String, PlannedProfile>,
    /// When to reconcile again without a change.
    pub(super) next: Option<Instant>,
}

/// A profile.
#[derive(Debug)]
pub(super) struct PlannedProfile {
    /// As read.
    pub(super) profile: Arc<VnicProfile>,
    /// Its new status, if it differs.
    pub(super) status: Option<VnicProfileStatus>,
}

impl ProfileContext {
    /// Decides, and yields to other tasks meanwhile.
    pub(super) async fn decide_aside(&self, memory: Memory) -> (Decision, Memory) {
        let (look, now) = (self.clone(), Instant::now());
        let decided = spawn_blocking(move || look.decide(memory, now)).await;
        match decided.map_err(tokio::task::JoinError::try_into_panic) {
            Ok(decided) => decided,
            Err(Ok(panic)) => resume_unwind(panic),
            // The runtime ends, and the waiting task with it.
            Err(Err(_)) => std::future::pending().await,
        }
    }

    fn decide(&self, mut memory: Memory, now: Instant) -> (Decision, Memory) {
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
            Some((profile.name_any(), PlannedProfile { profile: profile.clone(), status }))
        });
        let decided = Decision { profiles: told.collect(), steps, waiting, next: plan.next };
        memory.unwanted = plan.unwanted;
        (decided, memory)
    }
}

impl Memory {
    /// Whether something was created from a profile that the watch has not reported yet.
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

    fn look(nodes: u32) -> ProfileContext {
        let metrics = Arc::new(Metrics::default());
        let (events, _) = Events::new(metrics.clone());
        ProfileContext { store: store(nodes), metrics, events, grace: Duration::ZERO }
    }

    /// On one thread, like the controller: a long decision on it would block other tasks.
    #[tokio::test(flavor = "current_thread")]
    async fn other_tasks_run_while_ten_thousand_nodes_are_planned() {
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
    fn only_refused_objects_back_off() {
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
    fn a_changed_spec_is_tried_at_once() {
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
    fn a_profile_keeps_its_finalizer_until_the_watch_caught_up() {
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
        assert!(!lost, "the object would be orphaned");
        assert!(lets_go(memory, now + TOLD_BY).0, "the watch never reported it");
        assert!(lets_go(made("pool-2.one.0123456789ab"), now).0, "another profile's");
    }
}
