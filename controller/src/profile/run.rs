//! Keeps the VnicAttachments what the VnicProfiles say: looks, plans, applies, tells; again whenever something changed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::{Client, Resource, ResourceExt};
use resident::logging::chain;
use tokio::time::{Instant, sleep, sleep_until};

use super::apply::{apply, write_status};
use super::failures::{Failure, Quiet, failures};
use super::observed::Observed;
use super::plan::{Plan, Step, plan};
use super::problems::Problems;
use super::removal::Unwanted;
use super::rests::Rests;
use super::selection::select;
use super::status;
use crate::events::{Events, Level, News};
use crate::metrics::Metrics;
use crate::store::Store;

/// Between two looks: changes come in swarms, and a look at ten thousand nodes is some milliseconds of work.
const PACE: Duration = Duration::from_secs(1);
/// What was made is told by the watch within this time, or not at all.
const TOLD_BY: Duration = Duration::from_mins(5);
/// A look without a reason, in case one was lost. It writes nothing where nothing is to be done.
const RESYNC: Duration = Duration::from_mins(5);

/// For how long a node that is not selected any more keeps its VNICs: a label that comes and goes with a rollout, or a
/// mistake that is noticed, costs nothing.
pub const GRACE: Duration = Duration::from_mins(10);

/// What it needs.
#[expect(missing_debug_implementations, reason = "the client has none")]
pub struct Profiles {
    /// The API server.
    pub client: Client,
    /// What there is; read whole before this runs.
    pub store: Arc<Store>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Where news go.
    pub events: Events,
    /// For how long a node that is not selected any more keeps its VNICs.
    pub grace: Duration,
    /// 0.0–1.0, for jitter.
    pub chance: fn() -> f64,
}

/// What remains from one pass to the next. All of it may be lost.
#[derive(Debug, Default)]
struct Memory {
    unwanted: Unwanted,
    problems: Problems,
    /// Objects that were made and that the watch has not told yet, and when. Their profiles are not let go.
    made: BTreeMap<String, Instant>,
    /// What was refused, or not answered.
    rests: Rests,
    /// Profiles whose failures were told of.
    quiet: Quiet,
}

impl Memory {
    /// Whether something was made from a profile that the watch has not told yet.
    fn has_made(&self, profile: &str) -> bool {
        self.made.keys().any(|name| name.split('.').next() == Some(profile))
    }
}

impl Profiles {
    /// Works until dropped.
    pub async fn run(self) {
        let mut memory = Memory::default();
        loop {
            let next = self.pass(&Observed::of(&self.store), &mut memory).await;
            sleep(PACE).await;
            tokio::select! {
                () = self.store.changed().notified() => {}
                () = sleep_until(next) => {}
            }
        }
    }

    /// One look, and all that follows from it. Returns when the next one is due.
    async fn pass(&self, observed: &Observed, memory: &mut Memory) -> Instant {
        let now = Instant::now();
        let selections = select(observed);
        let mut plan = plan(observed, &selections, (&memory.unwanted, self.grace, now));
        memory.made.retain(|_, made| made.elapsed() < TOLD_BY);
        for object in &observed.attachments {
            memory.made.remove(&object.name_any());
        }
        plan.steps.retain(|step| !matches!(step, Step::LetGo(profile) if memory.has_made(&profile.name)));
        plan.steps.retain(|step| !memory.rests.has(step.object(), now));
        memory.problems.tell(&plan.problems, &observed.nodes, &self.events);
        let sums = plan.reports.iter().map(|(profile, report)| (*profile, status::summary(report)));
        self.metrics.abandoned(plan.abandoned);
        self.metrics.looked(sums, plan.problems.iter().map(|problem| problem.reason));
        for step in &plan.steps {
            tracing::info!(event = "profile.step", %step);
        }
        let outcomes = apply(&self.client, &plan.steps).await;
        for (step, outcome) in &outcomes {
            self.metrics.wrote(step.kind(), outcome.is_ok());
            memory.rests.note(step.object(), outcome.is_ok(), (Instant::now(), (self.chance)()));
            match (step, outcome) {
                (Step::Make(stamp), Ok(())) => drop(memory.made.insert(stamp.name.clone(), now)),
                (_, Ok(())) => {}
                (_, Err(error)) => tracing::debug!(event = "profile.step_failed", %step, error = chain(error)),
            }
        }
        self.complain(&plan, &failures(&outcomes), memory);
        for (profile, report) in &plan.reports {
            let Some(status) = status::changed(report, Time(Timestamp::now())) else { continue };
            let key = format!("{profile}/status");
            if memory.rests.has(&key, now) {
                continue;
            }
            let written = write_status(&self.client, profile, &status).await;
            self.metrics.wrote("profile_status", written.is_ok());
            memory.rests.note(&key, written.is_ok(), (Instant::now(), (self.chance)()));
            if let Err(error) = written {
                tracing::warn!(event = "profile.status", profile, error = chain(&error));
            }
        }
        memory.unwanted = plan.unwanted;
        let due = [plan.next, memory.rests.next(Instant::now())];
        due.into_iter().flatten().fold(now + RESYNC, Instant::min)
    }

    /// Tells of steps that failed: a line and an event per profile, whatever their number.
    fn complain(&self, plan: &Plan<'_>, failures: &BTreeMap<Option<&str>, Failure<'_>>, memory: &mut Memory) {
        for (profile, failure) in failures {
            tracing::warn!(event = "profile.steps_failed", profile, %failure);
            let Some(report) = profile.and_then(|profile| plan.reports.get(profile)) else { continue };
            if memory.quiet.is_over(profile.unwrap_or_default(), Instant::now()) {
                self.events.tell(News {
                    regarding: report.profile.object_ref(&()),
                    level: Level::Warning,
                    reason: "StampingFailed",
                    action: "Stamp",
                    note: failure.to_string(),
                });
            }
        }
    }
}
