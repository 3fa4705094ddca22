//! Takes the steps of a plan, in order, and says what came of them. A step that fails stops those of its object that rest on it
//! (`blocked_steps`); the others go on.

mod blocked_steps;
pub mod managed_fields;
pub mod objects;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::VnicAttachment;
use kube::ResourceExt;
use oci::{Cloud, CreateAddress, CreateAddresses, Kind};
use resident::logging::chain;
use vcn::Ocid;

use crate::attachment::apply::objects::{ObjectError, Objects};
use crate::attachment::plan::Plan;
use crate::attachment::plan::step::{Action, NewAddress, Step};
use crate::attachment::refusal;
use crate::attachment::report::attachment_status::StatusReason;
use crate::report::metrics::Metrics;
use blocked_steps::hinders;

/// What came of a plan.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Steps that were taken.
    pub done: Vec<Step>,
    /// What failed first, by object: where the cloud refused something, that.
    pub failed: BTreeMap<String, Failure>,
    /// The attach or detach that was refused: a plan has one at most.
    pub refused: Option<Refusal>,
    /// Objects that are no more.
    pub gone: BTreeSet<String>,
    /// Objects whose token of the VNIC the cloud refused.
    pub spent: BTreeSet<String>,
    /// Objects of which a token of an address was refused.
    pub spent_addresses: BTreeSet<String>,
    /// Objects that were refused several addresses at once.
    pub refused_bulks: BTreeSet<String>,
    /// Addresses whose release was answered 404.
    pub unreleased: BTreeSet<Ocid>,
}

/// An attach or detach that was refused, whatever for: the next turn is another's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Ownership it was.
    pub object: String,
    /// Why.
    pub said: StatusReason,
    /// Whether the next turn may be had at once. It may not where the refused request may have been carried out, or where any
    /// would be refused: an instance takes one at a time, and the next look tells whether it does.
    pub passes_on: bool,
}

/// Why an object's step failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The cloud refused.
    Cloud(StatusReason),
    /// The API server did. There is no telling of it in the object.
    Kubernetes,
    /// What was known is old: look again. With what the cloud said.
    Old(Option<StatusReason>),
}

impl Outcome {
    /// Whether something was asked for that comes later.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.done.iter().any(|step| step.action.comes_later())
    }

    /// Whether looking again at once may lead further: something was done for good, or what was known of the cloud was old. An object
    /// that is another than was known comes by the watch.
    #[must_use]
    pub fn leads_on(&self) -> bool {
        let only_old = self.failed.values().all(|failure| matches!(failure, Failure::Old(Some(_))));
        !self.waits() && only_old && !(self.done.is_empty() && self.failed.is_empty() && self.gone.is_empty())
    }
}

/// Who takes steps.
#[derive(Debug)]
pub struct Applier<'a, C, O> {
    /// The cloud.
    pub cloud: &'a C,
    /// The objects.
    pub objects: &'a O,
    /// What is counted.
    pub metrics: &'a Metrics,
    /// Objects of which what was known was old the last time, and was read anew since.
    pub stale: &'a BTreeSet<String>,
    /// Addresses whose release was answered 404, and that were listed since.
    pub unreleased: &'a BTreeSet<Ocid>,
}

enum Ended {
    Done,
    Gone,
}

enum Problem {
    Cloud(oci::Error),
    Object(ObjectError),
}

impl<C: Cloud, O: Objects> Applier<'_, C, O> {
    /// Takes the steps. `all` are the objects; those that a step changes are replaced.
    pub async fn apply(&self, plan: &Plan, all: &mut [Arc<VnicAttachment>]) -> Outcome {
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
                Ok(Ended::Done) => {
                    tracing::info!(event = "step.done", object = step.object, step = %step);
                    outcome.done.push(step.clone());
                }
                Ok(Ended::Gone) => drop(outcome.gone.insert(step.object.clone())),
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

    fn failed(&self, step: &Step, problem: Problem, outcome: &mut Outcome) -> Failure {
        match problem {
            Problem::Cloud(error) => {
                tracing::warn!(
                    event = "step.failed",
                    object = step.object,
                    step = %step,
                    error = chain(&error),
                    request_id = error.request_id(),
                );
                let said = refusal::said(&error, Some(&step.action));
                match error.kind() {
                    // It was listed a moment ago: it is gone since, or not ours to release. The next list tells which.
                    Kind::NotFoundOrForbidden if self.may_be_released(&step.action, outcome) => {
                        Failure::Old(Some(said))
                    }
                    // Another token is the answer to nothing else: any other refusal leaves it open whether the request was
                    // carried out, and with another token it might be carried out twice. So it might be here, for the same token
                    // may have gone with what the spec was before; `InstanceMemory` waits until lists tell.
                    _ if refusal::is_of_token(&error) && matches!(step.action, Action::Attach(..)) => {
                        outcome.spent.insert(step.object.clone());
                        self.old(step, said, outcome)
                    }
                    // The body of these never changes while the token is the same.
                    Kind::Conflict if refusal::is_of_token(&error) && step.action.is_create_address() => {
                        outcome.spent_addresses.insert(step.object.clone());
                        Failure::Old(Some(said))
                    }
                    Kind::Conflict if is_about_an_address(&step.action) => Failure::Cloud(said),
                    // Which right several at once take is written nowhere (docs/iam.md): it may be another than one at a time takes.
                    _ if matches!(step.action, Action::CreateAddresses(..)) && refusal::is_of_such_requests(&error) => {
                        outcome.refused_bulks.insert(step.object.clone());
                        Failure::Cloud(said)
                    }
                    Kind::Conflict | Kind::Changed => self.old(step, said, outcome),
                    _ => {
                        refused(step, &said, refusal::is_its_own(said.reason), outcome);
                        Failure::Cloud(said)
                    }
                }
            }
            Problem::Object(error) if error.is_conflict() => Failure::Old(None),
            Problem::Object(error) => {
                tracing::warn!(event = "step.failed", object = step.object, step = %step, error = chain(&error));
                Failure::Kubernetes
            }
        }
    }

    /// What was known is old, once; then it is a refusal of the object's own.
    fn old(&self, step: &Step, said: StatusReason, outcome: &mut Outcome) -> Failure {
        if !self.stale.contains(&step.object) {
            return Failure::Old(Some(said));
        }
        refused(step, &said, true, outcome);
        Failure::Cloud(said)
    }

    /// Whether this released an address that may be gone: that was not answered 404 before.
    fn may_be_released(&self, action: &Action, outcome: &mut Outcome) -> bool {
        let Action::DeleteAddress { id, .. } = action else { return false };
        outcome.unreleased.insert(id.clone());
        !self.unreleased.contains(id)
    }

    async fn take(&self, step: &Step, object: &mut Arc<VnicAttachment>) -> Result<Ended, Problem> {
        let cloud = self.cloud;
        match &step.action {
            Action::AddFinalizer | Action::RemoveFinalizer => {
                let wanted = step.action == Action::AddFinalizer;
                let written = self.objects.set_finalizer(object, wanted).await;
                self.metrics.wrote("finalizer", written.is_ok());
                match written.map_err(Problem::Object)? {
                    Some(new) if wanted => {
                        *object = Arc::new(new);
                        return Ok(Ended::Done);
                    }
                    _ => return Ok(Ended::Gone),
                }
            }
            Action::Attach(wish, token) => {
                let made = cloud.attach_vnic(wish, token).await.map_err(Problem::Cloud)?;
                tracing::info!(event = "vnic.asked", object = step.object, attachment = %made.value.id);
            }
            Action::Detach(attachment) => cloud.detach_vnic(attachment, None).await.map_err(Problem::Cloud)?,
            Action::Update(vnic, change) | Action::Disown(vnic, change) => {
                let updated = cloud.update_vnic(&vnic.id, change, vnic.etag.as_ref()).await;
                updated.map_err(Problem::Cloud)?;
            }
            Action::CreateAddress(new, address) => {
                let NewAddress { vnic, family, block, tags, token } = new;
                let wish = CreateAddress {
                    vnic_id: Some(vnic.clone()),
                    ip_address: *address,
                    ipv6_subnet_cidr: *block,
                    freeform_tags: tags.clone(),
                    ..CreateAddress::default()
                };
                cloud.create_address(*family, &wish, token).await.map_err(Problem::Cloud)?;
            }
            Action::CreateAddresses(new, count) => {
                let NewAddress { vnic, family, block, tags, token } = new;
                let item =
                    CreateAddress { ipv6_subnet_cidr: *block, freeform_tags: tags.clone(), ..CreateAddress::default() };
                let items = (0..*count).map(|_| item.clone()).collect();
                let wish = CreateAddresses { vnic_id: vnic.clone(), items };
                cloud.create_addresses(*family, &wish, token).await.map_err(Problem::Cloud)?;
            }
            Action::DeleteAddress { family, id, .. } => {
                cloud.delete_address(*family, id).await.map_err(Problem::Cloud)?;
            }
        }
        Ok(Ended::Done)
    }
}

/// The instance's turn is another object's, at once or at the next look.
fn refused(step: &Step, said: &StatusReason, passes_on: bool, outcome: &mut Outcome) {
    if matches!(step.action, Action::Attach(..) | Action::Detach(_)) {
        outcome.refused = Some(Refusal { object: step.object.clone(), said: said.clone(), passes_on });
    }
}

/// Whether a conflict is about the address that was asked for by name: it is taken.
const fn is_about_an_address(action: &Action) -> bool {
    matches!(action, Action::CreateAddress(_, Some(_)))
}
