//! Applies the steps of a plan, in order, and returns their results. A failed step stops those of its object that depend on
//! it (`blocked_steps`); the others continue.

mod blocked_steps;
pub mod objects;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::VnicAttachment;
use kube::ResourceExt;
use oci::{CreateAddress, CreateAddresses, Kind, Oci};
use resident::logging::chain;

use crate::attachment::apply::objects::Objects;
use crate::attachment::plan::Plan;
use crate::attachment::refusal;
use crate::attachment::report::attachment_status::StatusReason;
use crate::attachment::step::{Action, NewAddress, Step};
use crate::cluster::request::RequestError;
use crate::report::metrics::Metrics;
use blocked_steps::hinders;

#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub done: Vec<Step>,
    /// The first failure by object; OCI's refusal, if there is one.
    pub failed: BTreeMap<String, Failure>,
    /// The refused attach or detach: a plan has at most one.
    pub refused: Option<Refusal>,
    /// Objects that no longer exist.
    pub gone: BTreeSet<String>,
    /// Objects with a refused address token.
    pub spent_addresses: BTreeSet<String>,
    /// Objects whose bulk request for addresses was refused.
    pub refused_bulks: BTreeSet<String>,
}

/// A refused attach or detach: another object of the instance is next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub object: String,
    pub cause: StatusReason,
    /// Whether the next object may be tried at once. Not if the refused request may have been carried out, or if any would be
    /// refused, because an instance takes one at a time: the next reconcile shows that.
    pub allows_next_object: bool,
}

/// Why an object's step failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Cloud(StatusReason),
    /// The API server refused, so the object cannot report it.
    Kubernetes,
    /// The known state was stale: read again. With OCI's answer.
    Old(Option<StatusReason>),
}

impl Outcome {
    /// Whether a request was accepted that takes effect later.
    pub(crate) fn waits(&self) -> bool {
        self.done.iter().any(|step| step.action.comes_later())
    }

    /// Whether another reconcile at once may help: something took effect, or OCI's known state was stale. A changed object
    /// comes by the watch.
    pub(crate) fn may_reconcile_again(&self) -> bool {
        let only_old = self.failed.values().all(|failure| matches!(failure, Failure::Old(Some(_))));
        !self.waits() && only_old && !(self.done.is_empty() && self.failed.is_empty() && self.gone.is_empty())
    }
}

pub(crate) struct Applier<'a, O> {
    pub cloud: &'a Oci,
    pub objects: &'a O,
    pub metrics: &'a Metrics,
    /// Objects whose known state was stale a moment ago, and was read again since.
    pub stale: &'a BTreeSet<String>,
}

enum StepOutcome {
    Done,
    Gone,
}

enum StepError {
    Cloud(oci::Error),
    Object(RequestError),
}

impl<O: Objects> Applier<'_, O> {
    /// Applies the steps. `all` are the objects; changed ones are replaced.
    pub(crate) async fn apply(&self, plan: &Plan, all: &mut [Arc<VnicAttachment>]) -> Outcome {
        let mut outcome = Outcome::default();
        let mut failures: Vec<(&Step, Failure)> = Vec::new();
        for step in &plan.steps {
            let mut own = failures.iter().filter(|(failed, _)| failed.object == step.object);
            let is_hindered = own.any(|(failed, failure)| hinders(&failed.action, failure, &step.action));
            if is_hindered || outcome.gone.contains(&step.object) {
                continue;
            }
            let Some(object) = all.iter_mut().find(|object| object.name_any() == step.object) else { continue };
            let result = self.take(step, object).await;
            self.metrics.stepped(step.action.kind(), result.is_ok());
            match result {
                Ok(StepOutcome::Done) => {
                    tracing::info!(event = "step.done", object = step.object, step = %step);
                    outcome.done.push(step.clone());
                }
                Ok(StepOutcome::Gone) => drop(outcome.gone.insert(step.object.clone())),
                Err(problem) => {
                    let failure = self.failed(step, problem, &mut outcome);
                    failures.push((step, failure));
                }
            }
        }
        failures.sort_by_key(|(_, failure)| !matches!(failure, Failure::Cloud(_)));
        for (step, failure) in failures {
            outcome.failed.entry(step.object.clone()).or_insert(failure);
        }
        outcome
    }

    fn failed(&self, step: &Step, problem: StepError, outcome: &mut Outcome) -> Failure {
        match problem {
            StepError::Cloud(error) => {
                tracing::warn!(
                    event = "step.failed",
                    object = step.object,
                    step = %step,
                    error = chain(&error),
                    request_id = error.request_id(),
                );
                let cause = refusal::status_reason(&error, Some(&step.action));
                match error.kind() {
                    // It was listed a moment ago: it is gone since, or we may not release it. The next list shows which.
                    Kind::NotFoundOrForbidden if matches!(step.action, Action::DeleteAddress { .. }) => {
                        self.old(step, cause, outcome)
                    }
                    // The body of these never changes while the token is the same.
                    Kind::Conflict if refusal::is_of_token(&error) && step.action.is_create_address() => {
                        outcome.spent_addresses.insert(step.object.clone());
                        Failure::Old(Some(cause))
                    }
                    Kind::Conflict if is_about_an_address(&step.action) => Failure::Cloud(cause),
                    // Bulk requests may need another permission than single ones; no document says which (docs/iam.md).
                    _ if matches!(step.action, Action::CreateAddresses(..)) && refusal::is_of_such_requests(&error) => {
                        outcome.refused_bulks.insert(step.object.clone());
                        Failure::Old(Some(cause))
                    }
                    Kind::Conflict | Kind::Changed => self.old(step, cause, outcome),
                    _ => {
                        refused(step, &cause, refusal::is_its_own(cause.reason), outcome);
                        Failure::Cloud(cause)
                    }
                }
            }
            StepError::Object(error) if error.is_conflict() => Failure::Old(None),
            StepError::Object(error) => {
                tracing::warn!(event = "step.failed", object = step.object, step = %step, error = chain(&error));
                Failure::Kubernetes
            }
        }
    }

    /// The first time, the known state was stale; then it is a refusal of the object itself.
    fn old(&self, step: &Step, cause: StatusReason, outcome: &mut Outcome) -> Failure {
        if !self.stale.contains(&step.object) {
            return Failure::Old(Some(cause));
        }
        refused(step, &cause, true, outcome);
        Failure::Cloud(cause)
    }

    async fn take(&self, step: &Step, object: &mut Arc<VnicAttachment>) -> Result<StepOutcome, StepError> {
        let cloud = self.cloud;
        match &step.action {
            Action::AddFinalizer | Action::RemoveFinalizer => {
                let is_added = step.action == Action::AddFinalizer;
                let written = self.objects.set_finalizer(object, is_added).await;
                self.metrics.wrote(step.action.kind(), written.is_ok());
                match written.map_err(StepError::Object)? {
                    Some(new) if is_added => {
                        *object = Arc::new(new);
                        return Ok(StepOutcome::Done);
                    }
                    _ => return Ok(StepOutcome::Gone),
                }
            }
            Action::Attach(request, token) => {
                let made = cloud.attach_vnic(request, token).await.map_err(StepError::Cloud)?;
                tracing::info!(event = "vnic.attaching", object = step.object, attachment = %made.value.id);
            }
            Action::Detach(attachment) => cloud.detach_vnic(attachment, None).await.map_err(StepError::Cloud)?,
            Action::Update(vnic, change) | Action::Disown(vnic, change) => {
                let updated = cloud.update_vnic(&vnic.id, change, vnic.etag.as_ref()).await;
                updated.map_err(StepError::Cloud)?;
            }
            Action::CreateAddress(new, address) => {
                let NewAddress { vnic, family, block, tags, token } = new;
                let request = CreateAddress {
                    vnic_id: Some(vnic.clone()),
                    ip_address: *address,
                    ipv6_subnet_cidr: *block,
                    freeform_tags: tags.clone(),
                    ..CreateAddress::default()
                };
                cloud.create_address(*family, &request, token).await.map_err(StepError::Cloud)?;
            }
            Action::CreateAddresses(new, count) => {
                let NewAddress { vnic, family, block, tags, token } = new;
                let item =
                    CreateAddress { ipv6_subnet_cidr: *block, freeform_tags: tags.clone(), ..CreateAddress::default() };
                let items = (0..*count).map(|_| item.clone()).collect();
                let request = CreateAddresses { vnic_id: vnic.clone(), items };
                cloud.create_addresses(*family, &request, token).await.map_err(StepError::Cloud)?;
            }
            Action::DeleteAddress { family, id, .. } => {
                cloud.delete_address(*family, id).await.map_err(StepError::Cloud)?;
            }
        }
        Ok(StepOutcome::Done)
    }
}

/// Another object of the instance is next, at once or at the next reconcile.
fn refused(step: &Step, cause: &StatusReason, allows_next_object: bool, outcome: &mut Outcome) {
    if matches!(step.action, Action::Attach(..) | Action::Detach(_)) {
        outcome.refused = Some(Refusal { object: step.object.clone(), cause: cause.clone(), allows_next_object });
    }
}

/// Whether a conflict is about the requested address: it is in use.
const fn is_about_an_address(action: &Action) -> bool {
    matches!(action, Action::CreateAddress(_, Some(_)))
}
