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
pub mod step;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use api::AttachmentReason as Reason;
use api::{ConditionType, NAME_TAG, VnicAttachment};
use backoff::Backoff;
use kube::ResourceExt;
use oci::{AttachmentState, InstanceState};
use tokio::time::Instant;

use crate::attachment::mark::{Mark, Uid};
use crate::attachment::observe::forgotten::{self, Clock, EvidenceGap};
use crate::attachment::observe::observed::{Machine, Observed, Owner, Seen, SeenVnic};
use crate::attachment::plan::step::{Action, Step};
use crate::attachment::report::attachment_status::{AttachmentStatus, Facts, StatusReason};
use crate::attachment::state::failed_attempts::{FailedAttempt, RemainingBackoff};
use crate::attachment::state::retry_state::RetryState;
use crate::work::Pause;
use case::Case;
use slot::Slot;

/// After this time OCI may have forgotten a token and its use: it keeps tokens for 24 hours, by its own clock.
pub const TOKEN_LIFE: Duration = Duration::from_hours(12);

/// The requests, and what is remembered of earlier reconciles.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    /// The objects of the instance.
    pub objects: &'a [Arc<VnicAttachment>],
    /// The mark of our VNICs.
    pub mark: &'a Mark,
    /// Objects that a later version wrote and this one cannot read: their VNICs are not orphaned.
    pub unreadable: &'a BTreeSet<String>,
    /// The retry state, by object.
    pub retry_states: &'a HashMap<Uid, Box<RetryState>>,
    /// When the lists were requested: a late answer shows how things were then, at the earliest.
    pub read_at: Instant,
    /// The backoff of repeated attempts.
    pub pauses: Backoff,
    /// How long a VNIC must be missing from lists until it is certain that it is not being created: lists can lag behind
    /// requests.
    pub proof: Duration,
    /// The current time.
    pub clock: Clock,
}

/// Steps and statuses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Steps, in this order.
    pub steps: Vec<Step>,
    /// Statuses, by the objects' names.
    pub verdicts: BTreeMap<String, AttachmentStatus>,
    /// Whether something changes by itself soon, or the next step has to wait for it.
    pub waits: bool,
    /// Whether expected resources are invisible in OCI: they may appear, or a policy may be added.
    pub unseen: bool,
    /// Whether objects wait for the attach or detach among the steps.
    pub queued: bool,
    /// Those of them that were not refused in a reconcile of their own.
    pub in_line: BTreeSet<String>,
    /// When the first backoff after a failed attempt ends.
    pub rests: Option<Pause>,
    /// Whether a step depends on the instance's pod network, which was not read: read it, and plan again.
    pub asks_pod_network: bool,
    /// Whether something waits for a change of it that no watch reports.
    pub held: bool,
    /// Objects whose VNICs match the spec, addresses apart.
    pub as_asked: BTreeSet<String>,
    /// VNICs with our tags whose objects are missing, or have another VNIC.
    pub unclaimed: Vec<Uid>,
}

/// Plans.
#[must_use]
pub fn plan(wanted: &Wanted<'_>, observed: &Observed) -> Plan {
    let mut plan = Plan { unclaimed: unclaimed(wanted, observed), ..Plan::default() };
    let mut cases: Vec<Case<'_>> = wanted.objects.iter().map(|object| Case::of(wanted, observed, object)).collect();
    // The oldest first: the first requester keeps its place.
    cases.sort_by(|a, b| a.age().cmp(&b.age()));
    let mut slot = Slot::of(observed);
    plan.waits = slot.taken_by.is_some();
    // Refused and failed ones go last, the longest ago first, so that none blocks the rest forever. Deletions come first
    // because they make room.
    let mut turns: Vec<&Case<'_>> = cases.iter().collect();
    turns.sort_by_key(|case| (case.state.refused.as_ref().map(|refused| refused.turn), !case.is_leaving()));
    for case in turns {
        if case.is_leaving() {
            let verdict = leaving::plan(case, wanted, observed, &mut slot, &mut plan);
            plan.verdicts.insert(case.name.clone(), verdict);
            continue;
        }
        // The name belongs to the object with a VNIC, else to the oldest; within one second, to the first in the alphabet.
        let namesakes = cases.iter().filter(|other| other.has_name_of(case));
        let rival = namesakes.min_by_key(|other| other.claim()).filter(|other| other.uid != case.uid);
        let verdict = match rival {
            Some(rival) if case.live().is_none() => {
                let message =
                    format!("VnicAttachment {} already uses the VNIC name {}", rival.name, case.object.spec.vnic.name);
                AttachmentStatus::without_vnic(Reason::NameTaken, message)
            }
            _ => stay(case, wanted, observed, &mut slot, &mut plan),
        };
        plan.verdicts.insert(case.name.clone(), verdict);
    }
    let unseen = |verdict: &AttachmentStatus| verdict.attached.reason == Reason::NotAuthorizedOrNotFound;
    plan.unseen |= plan.verdicts.values().any(unseen);
    plan
}

fn stay(
    case: &Case<'_>,
    wanted: &Wanted<'_>,
    observed: &Observed,
    slot: &mut Slot,
    plan: &mut Plan,
) -> AttachmentStatus {
    let (state, shape, most) = match &observed.machine {
        Machine::NotSeen => return not_seen(case, wanted),
        machine if machine.is_terminated() => return gone(),
        Machine::There { state, shape, most } => (*state, shape, *most),
    };
    if state == InstanceState::Terminating {
        // Its VNICs go first: no other program detached them, and nothing needs repair.
        plan.waits = true;
        return case.as_told_or(Reason::InstanceBusy, "the instance is TERMINATING");
    }
    if !case.has_finalizer() {
        plan.push(case, Action::AddFinalizer);
    }
    let subnet = observed.subnets.get(&case.object.spec.vnic.subnet_id);
    if let Some(live) = case.live() {
        let is_going = live.vnic.as_ref().is_some_and(SeenVnic::is_going);
        plan.waits |= is_going;
        return match (live.state(), &live.vnic) {
            (AttachmentState::Attached, Some(vnic)) if vnic.is_coming() => being_made(case, live, plan),
            (AttachmentState::Attached, Some(vnic)) if !is_going => present::plan(case, (vnic, subnet), wanted, plan),
            // One 404 for an attachment that is listed is no reason to report anything new.
            (AttachmentState::Attached, None) if case.state.unseen_looks < 2 && case.is_told_of(live) => {
                plan.waits = true;
                case.as_told()
            }
            // It may be going, as below.
            (AttachmentState::Detaching, _) | (AttachmentState::Attached, Some(_))
                if state == InstanceState::Stopping && case.was_attached() =>
            {
                case.as_told()
            }
            (AttachmentState::Detaching, _) | (AttachmentState::Attached, Some(_)) => being_detached(case, live),
            _ => {
                plan.unseen |= live.state() == AttachmentState::Attached;
                attaching(case, live)
            }
        };
    }
    if state == InstanceState::Stopping && case.was_attached() {
        // It may be going, and can be repaired only when it has stopped.
        plan.waits = true;
        return case.as_told();
    }
    if case.is_missing() && (case.absent_for() < wanted.proof || case.is_unlisted) {
        // A stale list is no reason to attach another, or to report anything new. If it stays stale, it is read with growing
        // backoff.
        plan.waits |= case.absent_for() < wanted.proof;
        plan.unseen = true;
        return case.as_told();
    }
    if case.outlived_tokens(wanted.clock)
        && !case.is_listed_gone()
        && case.state.unlisted_for(wanted.read_at) < wanted.proof
    {
        // Nor without a reported VNIC: OCI would refuse the token of a request that it has carried out.
        plan.waits = true;
        return case
            .as_told_or(Reason::Attaching, "OCI lists no VNIC for this object; waiting for proof that there is none");
    }
    let rest = case.rest_of(&[FailedAttempt::Attach, FailedAttempt::Loss]);
    let behind = case.was_attached().then(|| match rest {
        Some(RemainingBackoff { after: FailedAttempt::Loss, .. }) => FailedAttempt::Loss.said(),
        _ => StatusReason::new(Reason::DetachedOutOfBand, "the VNIC was detached outside the controller"),
    });
    let said = |reason, message: String| StatusReason::new(reason, message);
    let live = observed.attachments.iter().filter(|seen| seen.state().counts()).count() + plan.attaches();
    let is_private = subnet.is_some_and(|subnet| subnet.prohibit_public_ip_on_vnic);
    let hindered = if !matches!(state, InstanceState::Running | InstanceState::Stopped) {
        plan.waits = true;
        Some(said(Reason::InstanceBusy, format!("the instance is {}", word(state))))
    } else if most.is_some_and(|most| live as u64 >= u64::from(most)) {
        let most = most.unwrap_or_default();
        Some(said(Reason::ShapeCapacity, format!("the instance ({shape}) has {live} of {most} VNICs")))
    } else if case.object.spec.vnic.assign_public_ip && is_private {
        let message = "assignPublicIp is true, and the subnet prohibits public addresses (prohibitPublicIpOnVnic)";
        Some(said(Reason::InvalidSpec, message.to_owned()))
    } else if let Some(rest) = rest {
        plan.rest(rest.pause);
        Some(rest.after.said())
    } else if let Some(said) = slot.busy(case, plan) {
        plan.waits = true;
        Some(said)
    } else {
        None
    };
    let hindered = match (hindered, subnet) {
        (None, Some(_)) => pod_network::before_attach(observed, case.told(ConditionType::Ready), plan),
        (hindered, _) => hindered,
    };
    let verdict = match (hindered, subnet) {
        // First what happened, then what blocks the repair.
        (Some(_), _) if behind.is_some() && !case.is_told_of_detachment() => behind,
        (Some(said), _) => Some(said),
        (None, None) => {
            let subnet = &case.object.spec.vnic.subnet_id;
            Some(said(Reason::NotAuthorizedOrNotFound, format!("GetSubnet is answered 404: {subnet}")))
        }
        (None, Some(subnet)) => {
            slot.take("attached");
            plan.waits = true;
            plan.push(case, attach_request::attach(case, wanted.mark, subnet));
            behind
        }
    };
    let said = verdict.unwrap_or_else(|| StatusReason::new(Reason::Attaching, "OCI is creating the VNIC"));
    let said = if case.is_told_of_detachment() && said.reason == Reason::Attaching {
        StatusReason::new(
            Reason::DetachedOutOfBand,
            "the VNIC was detached outside the controller; it is being attached again",
        )
    } else if case.is_told(Reason::AttachFailed) && said.reason == Reason::Attaching {
        // Until it is attached: otherwise it would be written and reverted with each attempt.
        FailedAttempt::Attach.said()
    } else {
        said
    };
    AttachmentStatus { attached: said, ready: None, facts: Facts::default() }
}

/// The instance is gone. A profile's object is deleted when the Node is gone too: while the Node exists, the profile would
/// create it again (`profile/removal.rs`).
fn gone() -> AttachmentStatus {
    AttachmentStatus::without_vnic(Reason::NodeGone, "the instance is terminated, and its VNIC is gone")
}

/// OCI answers 404 for the instance. The status keeps the VNIC, because it is also read.
fn not_seen(case: &Case<'_>, wanted: &Wanted<'_>) -> AttachmentStatus {
    if case.stays_gone() {
        return case.as_told();
    }
    if case.forgotten() == Err(EvidenceGap::NotLooked) && case.is_told(Reason::InstanceForgotten) {
        // Without an answer there is no evidence either way.
        return case.as_told();
    }
    let (reason, message) = forgotten::said(case.told(ConditionType::Attached), case.forgotten(), wanted.clock);
    let facts = Facts { vnic_id: case.told_vnic().cloned(), ..Facts::default() };
    AttachmentStatus { facts, ..AttachmentStatus::without_vnic(reason, message) }
}

/// The controller detaches nothing that should stay. The status keeps the VNIC until it is gone, because another one is
/// requested only with proof.
fn being_detached(case: &Case<'_>, live: &Seen) -> AttachmentStatus {
    let attached = if case.is_told_of(live) || case.is_told_of_detachment() {
        StatusReason::new(
            Reason::DetachedOutOfBand,
            "the VNIC is being detached outside the controller; a new one is attached when it is gone",
        )
    } else if case.is_told(Reason::AttachFailed) {
        FailedAttempt::Attach.said()
    } else {
        // OCI itself may remove a VNIC that it could not attach.
        StatusReason::new(
            Reason::Detaching,
            "OCI is removing the VNIC before it was attached; a new one is attached when it is gone",
        )
    };
    AttachmentStatus { attached, ready: None, facts: case.facts_of(live) }
}

/// The VNIC is still PROVISIONING: make no calls, and do not newly report Attached.
fn being_made(case: &Case<'_>, live: &Seen, plan: &mut Plan) -> AttachmentStatus {
    plan.waits = true;
    // A VNIC is named from its creation on; one that was reported as attached is being changed, not created.
    if !(case.is_told_of(live) && case.is_told(Reason::Attached)) {
        return attaching(case, live);
    }
    let told = case.as_told();
    if case.is_told_in_this_generation() {
        return told;
    }
    // Ready refers to the previous generation.
    AttachmentStatus {
        ready: Some(StatusReason::new(Reason::ChangePending, "OCI has not finished the last change of the VNIC")),
        ..told
    }
}

fn attaching(case: &Case<'_>, live: &Seen) -> AttachmentStatus {
    let attached = if live.state() == AttachmentState::Attached && live.vnic.is_none() {
        StatusReason::new(
            Reason::Attaching,
            "the VNIC is attached, and GetVnic is answered 404: not visible yet, or no permission",
        )
    } else if (case.was_attached() && !case.is_told_of(live)) || case.is_told_of_detachment() {
        StatusReason::new(
            Reason::DetachedOutOfBand,
            "the VNIC was detached outside the controller; it is being attached again",
        )
    } else if case.is_told(Reason::AttachFailed) {
        FailedAttempt::Attach.said()
    } else {
        StatusReason::new(Reason::Attaching, "OCI is creating the VNIC")
    };
    AttachmentStatus { attached, ready: None, facts: case.facts_of(live) }
}

fn unclaimed(wanted: &Wanted<'_>, observed: &Observed) -> Vec<Uid> {
    let mut claims: BTreeSet<Uid> = wanted.objects.iter().filter_map(|object| object.uid()).collect();
    // The uids of unreadable objects are unknown, and a VNIC's object name is unknown until the VNIC is visible.
    let may_be_unreadable =
        |seen: &Seen| match seen.vnic.as_ref().map(|vnic| vnic.vnic.value.freeform_tags.get(NAME_TAG)) {
            Some(name) => name.is_some_and(|name| wanted.unreadable.contains(name)),
            None => !wanted.unreadable.is_empty(),
        };
    let live = observed.attachments.iter().filter(|seen| seen.state().counts());
    let owners = live.filter_map(|seen| match &seen.owner {
        Owner::Ours(uid) => Some((seen, uid.clone())),
        Owner::Foreign => None,
    });
    // An object claims one.
    let nobodys = owners.filter(|(seen, uid)| !claims.remove(uid) && !may_be_unreadable(seen));
    nobodys.map(|(_, uid)| uid).collect()
}

impl Plan {
    fn push(&mut self, case: &Case<'_>, action: Action) {
        self.steps.push(Step { object: case.name.clone(), action });
    }

    fn rest(&mut self, pause: Pause) {
        self.rests = Some(self.rests.map_or(pause, |first| first.and(pause)));
    }

    /// Whether nothing is to be done for any of the objects, now or later.
    #[must_use]
    pub fn is_in_order(&self) -> bool {
        self.verdicts.values().all(|verdict| matches!(verdict.ready_reason(), Reason::Ready | Reason::NodeGone))
    }

    fn attaches(&self) -> usize {
        self.steps.iter().filter(|step| matches!(step.action, Action::Attach(..))).count()
    }
}

const fn word(state: InstanceState) -> &'static str {
    match state {
        InstanceState::Moving => "MOVING",
        InstanceState::Provisioning => "PROVISIONING",
        InstanceState::Running => "RUNNING",
        InstanceState::Starting => "STARTING",
        InstanceState::Stopping => "STOPPING",
        InstanceState::Stopped => "STOPPED",
        InstanceState::CreatingImage => "CREATING_IMAGE",
        InstanceState::Terminating => "TERMINATING",
        InstanceState::Terminated => "TERMINATED",
        InstanceState::Unknown => "in a state that this version does not know",
    }
}
