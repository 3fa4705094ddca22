//! Plans steps and statuses from an instance's objects and OCI's state. Pure.
//!
//! ```text
//!   objects ──┐    being deleted? ──▶ leaving: detach or disown, then remove        one attach or detach at a time
//!             ├──▶ VNIC there?    ──▶ present: change, add and release addresses    per instance: others wait
//!   observed ─┘    else           ──▶ attach, if shape and slot allow
//! ```

mod attach_request;
mod case;
mod leaving;
mod pod_network;
mod present;
mod slot;
mod staying;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use api::AttachmentReason as Reason;
use api::{NAME_TAG, VnicAttachment};
use backoff::Backoff;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use oci::InstanceState;
use tokio::time::Instant;
use vcn::Ocid;

use crate::attachment::mark::{Mark, Uid};
use crate::attachment::observe::observed::{Observed, ObservedAttachment};
use crate::attachment::report::attachment_status::{AttachmentStatus, StatusReason};
use crate::attachment::state::retry_state::RetryState;
use crate::attachment::step::{Action, Step};
use crate::work::Pause;
use case::Case;
use slot::Slot;

/// After this time OCI may have forgotten a token and its use: it keeps tokens for 24 hours, by its own clock.
pub(crate) const TOKEN_LIFE: Duration = Duration::from_hours(12);

/// The requests, and what is remembered of earlier reconciles.
#[derive(Clone, Debug)]
pub(crate) struct PlanInput<'a> {
    pub objects: &'a [Arc<VnicAttachment>],
    pub mark: &'a Mark,
    /// Objects that a later version wrote and this one cannot read: their VNICs are not orphaned.
    pub unreadable: &'a BTreeSet<String>,
    /// By the uid of the object. An object without an entry has the default state.
    pub retry_states: &'a HashMap<Uid, RetryState>,
    /// What was done in this reconcile.
    pub progress: &'a Progress,
    /// When the lists were requested: a late answer shows how things were then, at the earliest.
    pub read_at: Instant,
    pub pauses: Backoff,
    /// How long a VNIC must be missing from lists until it is certain that it is not being created: lists can lag behind
    /// requests.
    pub proof: Duration,
    pub now: Timestamp,
}

/// What was done earlier in the same reconcile.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    /// Objects whose last step failed because the known state was stale.
    pub stale: BTreeSet<String>,
    /// Objects whose attach or detach was refused, and the refusal.
    pub refusals: BTreeMap<String, StatusReason>,
    /// VNICs that were changed, and addresses that were released: OCI accepted that.
    pub applied: BTreeSet<Ocid>,
    /// Objects whose bulk request for addresses was refused: single ones may be granted.
    pub refused_bulks: BTreeSet<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Steps, in this order.
    pub steps: Vec<Step>,
    /// By the objects' names.
    pub statuses: BTreeMap<String, AttachmentStatus>,
    /// Whether something changes by itself soon, or the next step has to wait for it.
    pub waits: bool,
    /// Whether expected resources are invisible in OCI, or it has not applied a change: both are retried with backoff.
    pub is_incomplete: bool,
    /// Whether objects wait for the attach or detach among the steps.
    pub queued: bool,
    /// The backoff that ends first, after failed attempts.
    pub backoff: Option<Pause>,
    /// Whether a step depends on the instance's pod network, which was not read: read it, and plan again.
    pub needs_pod_network: bool,
    /// Whether something waits for a change of it that no watch reports.
    pub held: bool,
    /// VNICs with our tags whose objects are missing, or have another VNIC.
    pub unclaimed: Vec<Uid>,
}

/// What the steps and the status of one object depend on, and what they add to.
struct ObjectPlanner<'a> {
    case: &'a Case<'a>,
    input: &'a PlanInput<'a>,
    observed: &'a Observed,
    slot: &'a mut Slot,
    plan: &'a mut Plan,
}

pub(crate) fn plan(input: &PlanInput<'_>, observed: &Observed) -> Plan {
    let mut plan = Plan { unclaimed: unclaimed(input, observed), ..Plan::default() };
    let mut cases: Vec<Case<'_>> = input.objects.iter().map(|object| Case::of(input, observed, object)).collect();
    // The oldest first: the first requester keeps its place.
    cases.sort_by(|a, b| a.age().cmp(&b.age()));
    let mut slot = Slot::of(observed);
    plan.waits = slot.taken_by.is_some();
    // Refused and failed ones go last, the longest ago first, so that none blocks the rest forever. Deletions come first
    // because they make room.
    let mut turns: Vec<&Case<'_>> = cases.iter().collect();
    turns.sort_by_key(|case| (case.state.refused, !case.is_leaving()));
    for case in turns {
        if case.is_leaving() {
            let planned_status = ObjectPlanner { case, input, observed, slot: &mut slot, plan: &mut plan }.leave();
            plan.statuses.insert(case.name.clone(), planned_status);
            continue;
        }
        // The name belongs to the object with a VNIC, else to the oldest; within one second, to the first in the alphabet.
        let namesakes = cases.iter().filter(|other| other.has_name_of(case));
        let rival = namesakes.min_by_key(|other| other.claim()).filter(|other| other.uid != case.uid);
        let planned_status = match rival {
            Some(rival) if case.live().is_none() => {
                let message =
                    format!("VnicAttachment {} already uses the VNIC name {}", rival.name, case.object.spec.vnic.name);
                AttachmentStatus::without_vnic(Reason::NameTaken, message)
            }
            _ => ObjectPlanner { case, input, observed, slot: &mut slot, plan: &mut plan }.stay(),
        };
        plan.statuses.insert(case.name.clone(), planned_status);
    }
    let is_invisible =
        |planned_status: &AttachmentStatus| planned_status.attached.reason == Reason::NotAuthorizedOrNotFound;
    plan.is_incomplete |= plan.statuses.values().any(is_invisible);
    plan
}

fn unclaimed(input: &PlanInput<'_>, observed: &Observed) -> Vec<Uid> {
    let mut claims: BTreeSet<Uid> = input.objects.iter().filter_map(|object| object.uid()).collect();
    // The uids of unreadable objects are unknown, and a VNIC's object name is unknown until the VNIC is visible.
    let may_be_unreadable =
        |seen: &ObservedAttachment| match seen.vnic.as_ref().map(|vnic| vnic.vnic.value.freeform_tags.get(NAME_TAG)) {
            Some(name) => name.is_some_and(|name| input.unreadable.contains(name)),
            None => !input.unreadable.is_empty(),
        };
    let live = observed.attachments.iter().filter(|seen| seen.state().counts());
    let owners = live.filter_map(|seen| Some((seen, seen.owner.clone()?)));
    // An object claims one.
    let nobodys = owners.filter(|(seen, uid)| !claims.remove(uid) && !may_be_unreadable(seen));
    nobodys.map(|(_, uid)| uid).collect()
}

impl Plan {
    fn push(&mut self, case: &Case<'_>, action: Action) {
        self.steps.push(Step { object: case.name.clone(), action });
    }

    fn back_off(&mut self, pause: Pause) {
        self.backoff = Some(self.backoff.map_or(pause, |first| first.and(pause)));
    }

    /// Whether nothing is to be done for any of the objects, now or later.
    pub(crate) fn is_in_sync(&self) -> bool {
        self.statuses
            .values()
            .all(|planned_status| matches!(planned_status.ready_reason(), Reason::Ready | Reason::NodeGone))
    }

    fn attaches(&self) -> usize {
        self.steps.iter().filter(|step| matches!(step.action, Action::Attach(..))).count()
    }
}

/// An instance in this state takes no attach and no detach.
fn is_busy(state: InstanceState) -> Option<StatusReason> {
    let is_free = matches!(state, InstanceState::Running | InstanceState::Stopped);
    (!is_free).then(|| StatusReason::new(Reason::InstanceBusy, format!("the instance is {state:?}")))
}
