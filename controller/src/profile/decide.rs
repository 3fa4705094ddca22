//! One reconcile of all profiles: what to write, and what to report. With ten thousand nodes it takes so long that it runs
//! outside the main thread, which renews the Lease.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::Arc;

use api::{VnicProfile, VnicProfileStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use crate::profile::node_pools::Nominated;
use crate::profile::plan::plan;
use crate::profile::plan::removal::{DeletionGrace, UnwantedObjects};
use crate::profile::plan::step::Step;
use crate::profile::profiles::Profiles;
use crate::profile::report::problems::Problems;
use crate::profile::report::status;
use crate::profile::retry_states::RetryStates;
use crate::profile::select::observed::Observed;
use crate::profile::select::selection::{Selections, select};

/// What is kept between two reconciles. All of it may be lost.
#[derive(Debug, Default)]
pub(super) struct Memory {
    unwanted: UnwantedObjects,
    problems: Problems,
    /// Objects whose writes were refused or not answered.
    pub(super) objects: RetryStates,
    /// Profiles whose status was refused or not answered.
    pub(super) statuses: RetryStates,
}

#[derive(Debug)]
pub(super) struct Decision {
    pub(super) steps: Vec<Step>,
    /// How many more writes a profile has, by its name, once one of it succeeds.
    pub(super) waiting: BTreeMap<String, usize>,
    /// By name: as read, and the new status if it differs.
    pub(super) profiles: BTreeMap<String, (Arc<VnicProfile>, Option<VnicProfileStatus>)>,
    /// When to reconcile again without a change.
    pub(super) next: Option<Instant>,
}

impl Profiles {
    /// Decides, and yields to other tasks meanwhile.
    pub(super) async fn decide_aside(&self, memory: Memory) -> (Decision, Memory) {
        let (own, now) = (self.clone(), Instant::now());
        let decided = spawn_blocking(move || own.decide(memory, now)).await;
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
        self.nominate(&selections);
        let mut plan =
            plan(&observed, &selections, DeletionGrace { unwanted: &memory.unwanted, period: self.grace, now });
        let generations = observed.profiles.iter().map(|profile| (profile.name_any(), profile.metadata.generation));
        memory.statuses.note_profiles(generations.clone().collect());
        memory.objects.note_profiles(generations.collect());
        let (steps, waiting) = memory.objects.due(std::mem::take(&mut plan.steps), now);
        memory.problems.report(&plan.problems, &observed.nodes, &self.events);
        let problems = plan.problems.iter().map(|problem| (problem.node, problem.reason, problem.note.as_str()));
        self.store.issues_mut().replace(problems, Timestamp::now());
        let sums = plan.reports.iter().map(|(profile, report)| (*profile, status::summary(report)));
        self.metrics.abandoned(plan.abandoned);
        self.metrics.profiles_reconciled(sums, plan.problems.iter().map(|problem| problem.reason), began.elapsed());
        let reported = observed.profiles.iter().filter_map(|profile| {
            let report = plan.reports.get(profile.metadata.name.as_deref()?)?;
            let status = status::changed(report, Time(Timestamp::now()));
            Some((profile.name_any(), (profile.clone(), status)))
        });
        let decided = Decision { profiles: reported.collect(), steps, waiting, next: plan.next };
        memory.unwanted = plan.unwanted;
        (decided, memory)
    }

    /// Sends the reader of node pools the instances whose node pool decides about VNICs.
    fn nominate(&self, selections: &Selections<'_>) {
        let nominated = selections.nominated.iter().map(|(instance, pool)| (instance.clone(), (*pool).clone()));
        let nominated: Nominated = nominated.collect();
        self.nominated.send_if_modified(|known| {
            *known != nominated && {
                *known = nominated;
                true
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio::sync::watch;
    use tokio::task::yield_now;

    use super::*;
    use crate::cluster::client::offline::client_with;
    use crate::cluster::events::Events;
    use crate::profile::profiles::ROUND;
    use crate::profile::sample::store;
    use crate::report::metrics::Metrics;

    /// On one thread, like the controller: a long decision on it would block other tasks.
    #[tokio::test(flavor = "current_thread")]
    async fn other_tasks_run_while_ten_thousand_nodes_are_planned() {
        let (metrics, turns) = (Arc::new(Metrics::default()), Arc::new(AtomicUsize::new(0)));
        let (events, _) = Events::new(metrics.clone());
        let (client, store, grace) = (client_with(|_, _| None), store(10_000), Duration::ZERO);
        let (nominated, round) = (watch::Sender::default(), ROUND);
        let look = Profiles { client, store, nominated, metrics, events, grace, round, chance: || 1.0 };
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
}
