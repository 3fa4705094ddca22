//! One reconcile of one instance: read, plan, apply, again while that helps, then report.

mod forgotten;
pub mod pace;
mod pacing;
mod pod_network;
mod reporting;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::{AttachmentReason, VnicAttachment};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use oci::{Budget, Cloud, CloudView};
use tokio::time::Instant;
use vcn::Ocid;

use crate::attachment::apply::objects::Objects;
use crate::attachment::apply::{Applier, Failure, Outcome, Refusal};
use crate::attachment::compartment_scan::Listings;
use crate::attachment::mark::{Mark, Uid};
use crate::attachment::observe::cache::Cache;
use crate::attachment::observe::forgotten::Clock;
use crate::attachment::observe::observed::{Machine, Observed, ReadError};
use crate::attachment::observe::pod_network::PodNetworks;
use crate::attachment::observe::read::{Question, leaving, read, told_addresses, told_vnics};
use crate::attachment::plan::step::{Action, VnicVersion};
use crate::attachment::plan::{Plan, PlanInput, plan};
use crate::attachment::report::event_diff;
use crate::attachment::state::instance_memory::{InstanceMemory, News};
use crate::attachment::state::retry_state::ReadTimes;
use crate::cluster::events::Events;
use crate::cluster::store::Store;
use crate::report::metrics::Metrics;
use crate::settings::Pace;
use crate::work::{DelayLimits, NextReconcile, Pause, Retries, Worker};

/// How often read, plan and apply are repeated in one reconcile: for finalizer and attach; for change and addresses; and once
/// to verify.
const ROUNDS: usize = 4;
/// How long a VNIC must be missing until it is certain that none is being created, in polls.
const PROOF: u32 = 3;

/// Reconciles VnicAttachments.
pub struct AttachmentWorker<C, O> {
    /// The cloud.
    pub cloud: C,
    /// The VnicAttachments.
    pub objects: O,
    /// The watched objects.
    pub store: Arc<Store>,
    /// The mark of our VNICs.
    pub mark: Mark,
    /// The Events.
    pub events: Events,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// The intervals.
    pub pace: Pace,
    /// OCI's request budget.
    pub budget: Budget,
    /// Data that many instances share.
    pub cache: Cache,
    /// Boxed because they are large: a hash table has spare slots, and doubles when it grows.
    pub(super) memories: Mutex<HashMap<Ocid, Box<InstanceMemory>>>,
    /// Instances with something in progress.
    waiting: Mutex<HashSet<Ocid>>,
    /// Compartments of instances.
    pub(super) compartments: Mutex<BTreeSet<Ocid>>,
    /// How many of our VNICs are on instances without objects.
    pub(super) orphaned: AtomicUsize,
    /// Lists that are requested when an instance is answered 404.
    listings: Listings,
}

/// The last round of a reconcile.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    pub(super) planned: Plan,
    pub(super) outcome: Outcome,
    /// Objects that had changed since they were read, before the first round.
    pub(super) stale: BTreeSet<String>,
    /// Whether OCI's answers are missing as they were in the reconcile before.
    pub(super) is_silent_again: bool,
}

/// A worker's dependencies.
#[derive(Clone, Debug)]
pub struct WorkerContext {
    /// The watched objects.
    pub store: Arc<Store>,
    /// The mark of our VNICs.
    pub mark: Mark,
    /// The Events.
    pub events: Events,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// The intervals.
    pub pace: Pace,
    /// OCI's request budget: the client's own.
    pub budget: Budget,
}

impl<C: Cloud + 'static, O: Objects + PodNetworks> AttachmentWorker<C, O> {
    /// A worker that remembers nothing yet.
    #[must_use]
    pub fn new(cloud: C, objects: O, surroundings: WorkerContext) -> Self {
        let WorkerContext { store, mark, events, metrics, pace, budget } = surroundings;
        let (cache, memories, waiting, compartments, orphaned, listings) = Default::default();
        Self {
            cloud,
            objects,
            store,
            mark,
            events,
            metrics,
            pace,
            budget,
            cache,
            memories,
            waiting,
            compartments,
            orphaned,
            listings,
        }
    }

    async fn look(&self, instance: &Ocid, memory: &mut InstanceMemory) -> NextReconcile {
        let mut objects = self.store.attachments().of(instance);
        let mut rounds = Rounds { stale: memory.stale.clone(), ..Rounds::default() };
        if let Err(error) = self.repeat(instance, &mut objects, memory, &mut rounds).await {
            self.tell_unreadable(&objects, &error, memory).await;
            return NextReconcile::Failed;
        }
        rounds.is_silent_again = memory.is_unanswered_again(&rounds.planned);
        let held = memory.held(rounds.planned.held, &self.pauses_of_held());
        let mut failed = !rounds.outcome.failed.is_empty();
        for object in &objects {
            if let Some(verdict) = self.to_tell(object, &rounds, memory) {
                failed |= !self.tell(object, &verdict, memory).await;
            }
        }
        let Rounds { planned, outcome, .. } = rounds;
        if failed {
            NextReconcile::Failed
        } else if objects.is_empty() {
            NextReconcile::Gone
        } else if planned.waits || outcome.waits() || outcome.leads_on() {
            NextReconcile::Soon(self.between_polls(instance))
        } else if planned.unseen {
            NextReconcile::Failed
        } else if let Some(pause) = planned.rests.into_iter().chain(held).reduce(Pause::and) {
            NextReconcile::BackOff(pause)
        } else if planned.is_in_order() {
            NextReconcile::Settled(self.between_looks())
        } else {
            // A person has to act, and the result should not be noticed hours later, however many instances there are.
            NextReconcile::Stuck(self.pace.resync)
        }
    }

    /// Reads, plans and applies, again while that helps.
    async fn repeat(
        &self,
        instance: &Ocid,
        objects: &mut Vec<Arc<VnicAttachment>>,
        memory: &mut InstanceMemory,
        rounds: &mut Rounds,
    ) -> Result<(), ReadError> {
        for _ in 0..ROUNDS {
            if objects.is_empty() {
                break;
            }
            let (mut observed, asked) = self.read(instance, objects, memory).await?;
            if observed.machine == Machine::NotSeen {
                self.seek(objects, memory).await;
            }
            let mut planned = self.plan(objects, &observed, memory, asked);
            if planned.asks_pod_network {
                observed.pod_network = Some(self.ask_pod_network(instance, memory).await);
                planned = self.plan(objects, &observed, memory, asked);
            }
            let outcome = self.apply(&planned, objects, memory).await;
            objects.retain(|object| !outcome.gone.contains(&object.name_any()));
            // A refused request does not block the next one.
            let passes_on = planned.queued && outcome.refused.as_ref().is_some_and(|refused| refused.passes_on);
            let is_last = !outcome.leads_on() && !passes_on;
            (rounds.planned, rounds.outcome) = (planned, outcome);
            if is_last {
                break;
            }
        }
        Ok(())
    }

    /// The state, and when it was requested.
    async fn read(
        &self,
        instance: &Ocid,
        objects: &[Arc<VnicAttachment>],
        memory: &mut InstanceMemory,
    ) -> Result<(Observed, Instant), ReadError> {
        let asked = Instant::now();
        if objects.iter().all(|object| event_diff::was_seen_terminated(object.status.as_ref())) {
            // It does not come back, and further requests would look like a missing policy.
            return Ok((Observed::not_seen(), asked));
        }
        let subnets: BTreeSet<Ocid> = objects.iter().map(|object| object.spec.vnic.subnet_id.clone()).collect();
        let ipv6 = objects.iter().any(|object| object.spec.vnic.ipv6_count > 0);
        let uids: HashSet<Uid> = objects.iter().filter_map(|object| object.uid()).collect();
        let told = told_vnics(objects);
        let (own, leaving) = (told_addresses(objects), leaving(objects));
        let (mark, foreign) = (&self.mark, &memory.foreign);
        let (present, leaving, detaching) = (&uids, &leaving, &memory.detaches());
        let (subnets, own, told) = (&subnets, &own, &told);
        let question = Question { instance, mark, subnets, ipv6, own, present, leaving, told, foreign, detaching };
        let observed = read(&self.cloud, &self.cache, question).await?;
        memory.unreadable = None;
        if let Some(compartment) = &observed.compartment {
            let mut known = self.compartments.lock().unwrap_or_else(PoisonError::into_inner);
            if !known.contains(compartment) {
                known.insert(compartment.clone());
            }
        }
        let proof = self.pace.poll * PROOF;
        let News { took, setbacks } = memory.note(objects, &observed, ReadTimes { asked, now: Instant::now(), proof });
        took.into_iter().for_each(|took| self.metrics.attached(took));
        for (object, kind) in setbacks.into_iter().filter_map(|(object, setback)| Some((object, setback.kind()?))) {
            tracing::warn!(event = "step.undone", object, kind, "OCI accepted a request and did not carry it out");
            self.metrics.undone(kind);
        }
        Ok((observed, asked))
    }

    fn plan(
        &self,
        objects: &[Arc<VnicAttachment>],
        observed: &Observed,
        memory: &mut InstanceMemory,
        asked: Instant,
    ) -> Plan {
        let pace = self.pace;
        let unreadable = self.store.attachments().unreadable().clone();
        let (mark, proof) = (&self.mark, pace.poll * PROOF);
        let clock = Clock { now: Timestamp::now(), resync: pace.resync };
        let (retry_states, pauses) = (&memory.objects, self.pauses());
        let wanted =
            PlanInput { objects, mark, unreadable: &unreadable, retry_states, read_at: asked, pauses, proof, clock };
        let planned = plan(&wanted, observed);
        if planned.unclaimed.len() > memory.unclaimed {
            let uids = planned.unclaimed.join(", ");
            tracing::warn!(
                event = "vnics.unclaimed",
                uids,
                "VNICs with our tags have no VnicAttachment, or their VnicAttachment has another VNIC"
            );
        }
        memory.unclaimed = planned.unclaimed.len();
        for object in objects {
            let facts = planned.verdicts.get(&object.name_any()).map(|verdict| &verdict.facts);
            if planned.as_asked.contains(&object.name_any()) {
                let vnic = facts.and_then(|facts| facts.vnic_id.as_ref());
                memory.of(&object.uid().unwrap_or_default()).is_as_asked(object.metadata.generation, vnic);
            }
            let wanted = (Some(object.spec.vnic.ipv4_count.into()), Some(object.spec.vnic.ipv6_count.into()));
            if facts.is_some_and(|facts| facts.ipv4_count >= wanted.0 && facts.ipv6_count >= wanted.1) {
                memory.of(&object.uid().unwrap_or_default()).has_addresses();
            }
        }
        planned
    }

    async fn apply(&self, planned: &Plan, objects: &mut [Arc<VnicAttachment>], memory: &mut InstanceMemory) -> Outcome {
        let uid = |name: &str, objects: &[Arc<VnicAttachment>]| {
            objects.iter().find(|object| object.name_any() == name).and_then(|object| object.uid()).unwrap_or_default()
        };
        for step in &planned.steps {
            // Before it is sent: its result may never be known.
            if let Action::Attach(..) = step.action {
                memory.of(&uid(&step.object, objects)).asked(Instant::now());
            }
        }
        let (cloud, metrics, stale) = (&self.cloud, &self.metrics, &memory.stale);
        let unreleased = &memory.unreleased;
        let applier = Applier { cloud, objects: &self.objects, metrics, stale, unreleased };
        let outcome = applier.apply(planned, objects).await;
        memory.stale.retain(|name| outcome.failed.contains_key(name));
        let old = outcome.failed.iter().filter(|(_, failure)| matches!(failure, Failure::Old(Some(_))));
        memory.stale.extend(old.map(|(name, _)| name.clone()));
        memory.released(planned, &outcome);
        for name in &outcome.spent {
            memory.of(&uid(name, objects)).spent(Instant::now());
        }
        if let Some(Refusal { object, said, .. }) = &outcome.refused {
            memory.refused(&uid(object, objects), said.clone());
        }
        for name in &outcome.spent_addresses {
            memory.of(&uid(name, objects)).spent_address_tokens += 1;
        }
        for name in &outcome.refused_bulks {
            memory.of(&uid(name, objects)).refused_addresses();
        }
        let attaches = planned.steps.iter().filter(|step| matches!(step.action, Action::Attach(..)));
        for step in attaches {
            // An unanswered request may have been carried out.
            let refused = outcome.failed.get(&step.object);
            if matches!(refused, Some(Failure::Cloud(said)) if said.reason != AttachmentReason::OciUnavailable) {
                memory.of(&uid(&step.object, objects)).declined();
            }
        }
        for step in &outcome.done {
            let uid = uid(&step.object, objects);
            match &step.action {
                Action::Update(VnicVersion { id, .. }, _) | Action::DeleteAddress { id, .. } => {
                    memory.of(&uid).took(id, Instant::now());
                }
                Action::Attach(..) => memory.of(&uid).attaching(),
                Action::Detach(attachment) => memory.of(&uid).detaching(attachment, Instant::now()),
                Action::CreateAddresses(new, _) => memory.of(&uid).asked_for_addresses(new.family),
                _ => {}
            }
        }
        outcome
    }

    fn memory(&self, instance: &Ocid) -> InstanceMemory {
        let mut memories = self.memories.lock().unwrap_or_else(PoisonError::into_inner);
        memories.get_mut(instance).map(|memory| memory.lend()).unwrap_or_default()
    }

    fn remember(&self, instance: &Ocid, memory: InstanceMemory, next: NextReconcile) {
        if !matches!(next, NextReconcile::Soon(_)) {
            self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(instance);
        }
        let mut memories = self.memories.lock().unwrap_or_else(PoisonError::into_inner);
        if next == NextReconcile::Gone {
            memories.remove(instance);
        } else {
            **memories.entry(instance.clone()).or_default() = memory;
        }
        self.count_unclaimed(&memories);
    }

    pub(super) fn count_unclaimed(&self, memories: &HashMap<Ocid, Box<InstanceMemory>>) {
        let seen: usize = memories.values().map(|memory| memory.unclaimed).sum();
        self.metrics.unclaimed(seen + self.orphaned.load(Ordering::Relaxed));
    }
}

impl<C: Cloud + CloudView + 'static, O: Objects + PodNetworks> Worker<Ocid> for AttachmentWorker<C, O> {
    fn retries(&self) -> Retries {
        Retries { pauses: self.pauses(), apart: pace::between_retries(self.budget.standing().usual) }
    }

    fn longest(&self) -> DelayLimits {
        self.longest_pauses()
    }

    async fn work(&self, instance: Ocid) -> NextReconcile {
        let began = Instant::now();
        let mut memory = self.memory(&instance);
        let next = self.look(&instance, &mut memory).await;
        self.remember(&instance, memory, next);
        let took: Duration = began.elapsed();
        let result = match next {
            NextReconcile::Settled(_) | NextReconcile::Stuck(_) | NextReconcile::BackOff(_) | NextReconcile::Gone => {
                "settled"
            }
            NextReconcile::Soon(_) => "waiting",
            NextReconcile::Failed => "failed",
        };
        self.metrics.passed(result, took);
        next
    }
}

impl<C, O> fmt::Debug for AttachmentWorker<C, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttachmentWorker").field("mark", &self.mark).finish_non_exhaustive()
    }
}
