//! One reconcile of one instance: read, plan, apply, again while that helps, then report.

mod pace;
mod reporting;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use api::VnicAttachment;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use oci::{Budget, Oci};
use tokio::time::Instant;
use vcn::Ocid;

use crate::args::Pace;
use crate::attachment::apply::objects::Objects;
use crate::attachment::apply::{Applier, Failure, Outcome, Refusal};
use crate::attachment::mark::Mark;
use crate::attachment::observe::cache::Cache;
use crate::attachment::observe::observed::{Observed, ReadError};
use crate::attachment::observe::read::{Question, read};
use crate::attachment::plan::{Plan, PlanInput, Progress, plan};
use crate::attachment::report::event_diff;
use crate::attachment::state::instance_memory::InstanceMemory;
use crate::attachment::state::retry_state::ReadTimes;
use crate::attachment::step::{Action, VnicVersion};
use crate::cluster::events::Events;
use crate::cluster::store::Store;
use crate::report::metrics::Metrics;
use crate::work::{NextReconcile, Pause, Retries, Worker};

/// How often read, plan and apply are repeated in one reconcile: for finalizer and attach; for change and addresses; and once
/// to verify.
const ROUNDS: usize = 4;
/// How long a VNIC must be missing until it is certain that none is being created, in polls.
const PROOF: u32 = 3;

pub(crate) struct AttachmentWorker<O> {
    pub cloud: Oci,
    pub objects: O,
    /// What it shares with other tasks.
    pub context: WorkerContext,
    pub cache: Cache,
    memories: Mutex<HashMap<Ocid, InstanceMemory>>,
    /// Instances with something in progress.
    waiting: Mutex<HashSet<Ocid>>,
    pub(super) compartments: Mutex<BTreeSet<Ocid>>,
    /// How many of our VNICs are on instances without objects.
    orphaned: AtomicUsize,
}

#[derive(Clone)]
pub(crate) struct WorkerContext {
    pub store: Arc<Store>,
    pub mark: Mark,
    pub events: Events,
    pub metrics: Arc<Metrics>,
    pub pace: Pace,
    /// OCI's request budget: the client's own.
    pub budget: Budget,
}

/// The state of an instance, and when it was requested.
struct Reading {
    observed: Observed,
    requested_at: Instant,
}

impl<O: Objects> AttachmentWorker<O> {
    /// A worker that remembers nothing yet.
    pub(crate) fn new(cloud: Oci, objects: O, context: WorkerContext) -> Self {
        let (cache, memories, waiting, compartments, orphaned) = Default::default();
        Self { cloud, objects, context, cache, memories, waiting, compartments, orphaned }
    }

    async fn reconcile(&self, instance: &Ocid, memory: &mut InstanceMemory) -> NextReconcile {
        let mut objects = self.context.store.attachments().of(instance);
        let (planned, outcome) = match self.repeat(instance, &mut objects, memory).await {
            Ok(last) => last,
            Err(error) => {
                self.report_unreadable(&objects, &error, memory).await;
                return NextReconcile::Failed;
            }
        };
        memory.unreadable = None;
        let held = memory.held(planned.held, &self.pauses_of_held());
        let expected = self.report_expected(&objects, &planned);
        let mut failed = !outcome.failed.is_empty();
        for object in &objects {
            if let Some(planned_status) = reporting::planned_status(object, &planned, &outcome) {
                failed |= !self.report(object, &planned_status).await;
            }
        }
        if failed {
            NextReconcile::Failed
        } else if objects.is_empty() {
            NextReconcile::Gone
        } else if planned.waits || outcome.waits() || outcome.may_reconcile_again() {
            NextReconcile::Soon(self.between_polls(instance))
        } else if planned.is_incomplete {
            NextReconcile::Failed
        } else if let Some(pause) = planned.backoff.into_iter().chain(held).chain(expected).reduce(Pause::and) {
            NextReconcile::BackOff(pause)
        } else if planned.is_in_sync() {
            NextReconcile::Settled(self.between_looks())
        } else {
            // A person has to act, and the result should not be noticed hours later, however many instances there are.
            NextReconcile::Stuck(self.context.pace.resync)
        }
    }

    /// Reads, plans and applies, again while that helps. Returns the last plan, and its outcome.
    async fn repeat(
        &self,
        instance: &Ocid,
        objects: &mut Vec<Arc<VnicAttachment>>,
        memory: &mut InstanceMemory,
    ) -> Result<(Plan, Outcome), ReadError> {
        let (mut last, mut progress) = (Default::default(), Progress::default());
        for _ in 0..ROUNDS {
            if objects.is_empty() {
                break;
            }
            let mut reading = self.read(instance, objects, memory).await?;
            let mut planned = self.plan(objects, &reading, memory, &progress);
            if planned.needs_pod_network {
                reading.observed.pod_network = Some(self.objects.pod_network(instance).await?);
                planned = self.plan(objects, &reading, memory, &progress);
            }
            report_unclaimed(&planned, memory);
            let outcome = self.apply(&planned, objects, memory, &mut progress).await;
            objects.retain(|object| !outcome.gone.contains(&object.name_any()));
            // A refused request does not block the next one.
            let allows_next_object =
                planned.queued && outcome.refused.as_ref().is_some_and(|refused| refused.allows_next_object);
            let is_last = !outcome.may_reconcile_again() && !allows_next_object;
            last = (planned, outcome);
            if is_last {
                break;
            }
        }
        Ok(last)
    }

    async fn read(
        &self,
        instance: &Ocid,
        objects: &[Arc<VnicAttachment>],
        memory: &mut InstanceMemory,
    ) -> Result<Reading, ReadError> {
        let requested_at = Instant::now();
        if objects.iter().all(|object| event_diff::is_gone(object)) {
            // It does not come back, and further requests would look like a missing policy.
            return Ok(Reading { observed: Observed::not_seen(), requested_at });
        }
        let question = Question { instance, mark: &self.context.mark, objects, detaching: &memory.accepted_detaches() };
        let observed = read(&self.cloud, &self.cache, question).await?;
        if let Some(compartment) = &observed.compartment {
            self.compartments.lock().unwrap_or_else(PoisonError::into_inner).insert(compartment.clone());
        }
        let times = ReadTimes { requested_at, now: Instant::now(), proof: self.context.pace.poll * PROOF };
        memory.note(objects, &observed, times, &self.context.metrics);
        Ok(Reading { observed, requested_at })
    }

    fn plan(
        &self,
        objects: &[Arc<VnicAttachment>],
        reading: &Reading,
        memory: &InstanceMemory,
        progress: &Progress,
    ) -> Plan {
        let unreadable = self.context.store.attachments().unreadable().clone();
        let input = PlanInput {
            objects,
            mark: &self.context.mark,
            unreadable: &unreadable,
            retry_states: &memory.objects,
            progress,
            read_at: reading.requested_at,
            pauses: self.pauses(),
            proof: self.context.pace.poll * PROOF,
            now: Timestamp::now(),
        };
        plan(&input, &reading.observed)
    }

    async fn apply(
        &self,
        planned: &Plan,
        objects: &mut [Arc<VnicAttachment>],
        memory: &mut InstanceMemory,
        progress: &mut Progress,
    ) -> Outcome {
        let of: HashMap<String, Arc<VnicAttachment>> =
            objects.iter().map(|object| (object.name_any(), object.clone())).collect();
        let uid = |name: &str| of.get(name).and_then(|object| object.uid()).unwrap_or_default();
        for step in planned.steps.iter().filter(|step| matches!(step.action, Action::Attach(..))) {
            // Before it is sent: its result may never be known.
            memory.of(&uid(&step.object)).requested();
        }
        let applier = Applier {
            cloud: &self.cloud,
            objects: &self.objects,
            metrics: &self.context.metrics,
            stale: &progress.stale,
        };
        let outcome = applier.apply(planned, objects).await;
        progress.stale.retain(|name| outcome.failed.contains_key(name));
        let old = outcome.failed.iter().filter(|(_, failure)| matches!(failure, Failure::Old(Some(_))));
        progress.stale.extend(old.map(|(name, _)| name.clone()));
        progress.refused_bulks.extend(outcome.refused_bulks.iter().cloned());
        if let Some(Refusal { object, cause, .. }) = &outcome.refused {
            memory.refused(&uid(object));
            progress.refusals.insert(object.clone(), cause.clone());
        }
        for name in &outcome.spent_addresses {
            memory.of(&uid(name)).spent_address_tokens += 1;
        }
        for step in &outcome.done {
            let state = memory.of(&uid(&step.object));
            match &step.action {
                Action::Update(VnicVersion { id, .. }, _) | Action::DeleteAddress { id, .. } => {
                    progress.applied.insert(id.clone());
                }
                Action::Attach(..) => state.attaching(Instant::now()),
                Action::Detach(attachment) => state.detaching(attachment, Instant::now()),
                Action::CreateAddresses(..) => {
                    let generation = of.get(&step.object).and_then(|object| object.metadata.generation);
                    state.requested_in_bulk(generation, Instant::now());
                }
                _ => {}
            }
        }
        outcome
    }

    fn memory(&self, instance: &Ocid) -> InstanceMemory {
        let memories = self.memories.lock().unwrap_or_else(PoisonError::into_inner);
        memories.get(instance).cloned().unwrap_or_default()
    }

    fn remember(&self, instance: &Ocid, memory: InstanceMemory, next: NextReconcile) {
        if !matches!(next, NextReconcile::Soon(_)) {
            self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(instance);
        }
        let mut memories = self.memories.lock().unwrap_or_else(PoisonError::into_inner);
        if next == NextReconcile::Gone {
            memories.remove(instance);
        } else {
            memories.insert(instance.clone(), memory);
        }
        self.count_unclaimed(&memories);
    }

    /// Records how many of our VNICs are on instances without objects.
    pub(super) fn set_orphaned(&self, count: usize) {
        self.orphaned.store(count, Ordering::Relaxed);
        self.count_unclaimed(&self.memories.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn count_unclaimed(&self, memories: &HashMap<Ocid, InstanceMemory>) {
        let seen: usize = memories.values().map(|memory| memory.unclaimed).sum();
        self.context.metrics.unclaimed(seen + self.orphaned.load(Ordering::Relaxed));
    }
}

impl<O: Objects> Worker<Ocid> for AttachmentWorker<O> {
    fn retries(&self) -> Retries {
        Retries { pauses: self.pauses(), apart: self.between_retries() }
    }

    async fn work(&self, instance: Ocid) -> NextReconcile {
        let began = Instant::now();
        let mut memory = self.memory(&instance);
        let next = self.reconcile(&instance, &mut memory).await;
        self.remember(&instance, memory, next);
        let result = match next {
            NextReconcile::Settled(_) | NextReconcile::Stuck(_) | NextReconcile::BackOff(_) | NextReconcile::Gone => {
                "settled"
            }
            NextReconcile::Soon(_) => "waiting",
            NextReconcile::Failed => "failed",
        };
        self.context.metrics.reconciled(result, began.elapsed());
        next
    }
}

/// Logs VNICs without objects when they become more.
fn report_unclaimed(planned: &Plan, memory: &mut InstanceMemory) {
    if planned.unclaimed.len() > memory.unclaimed {
        let uids = planned.unclaimed.join(", ");
        tracing::warn!(
            event = "vnics.unclaimed",
            uids,
            "VNICs with our tags have no VnicAttachment, or their VnicAttachment has another VNIC"
        );
    }
    memory.unclaimed = planned.unclaimed.len();
}
