//! From what is wanted of an instance and what the cloud has, to steps and to what is to be said of each object. Pure.
//!
//! ```text
//!   objects ──┐    being deleted? ──▶ leaving: detach or disown, then let go        one attach or detach at a time
//!             ├──▶ VNIC there?    ──▶ present: change, give and release addresses   per instance: others wait
//!   observed ─┘    else           ──▶ wish: attach, as far as shape and slot allow
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
use crate::attachment::observe::forgotten::{self, Clock, Doubt};
use crate::attachment::observe::observed::{Machine, Observed, Owner, Seen, SeenVnic};
use crate::attachment::plan::step::{Action, Step};
use crate::attachment::report::attachment_status::{AttachmentStatus, Facts, StatusReason};
use crate::attachment::state::failed_attempts::{FailedAttempt, RemainingBackoff};
use crate::attachment::state::retry_state::RetryState;
use crate::work::Pause;
use case::Case;
use slot::Slot;

/// After this time a token may be forgotten, and with it that it was used: the cloud keeps it for 24 hours, by its own clock.
pub const TOKEN_LIFE: Duration = Duration::from_hours(12);

/// What is wanted, and what is remembered of earlier looks.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    /// The objects of the instance.
    pub objects: &'a [Arc<VnicAttachment>],
    /// Ownership VNICs are ours.
    pub mark: &'a Mark,
    /// The names of objects that a later version wrote and this one cannot read: VNICs of theirs are not nobody's.
    pub unreadable: &'a BTreeSet<String>,
    /// The retry state, by object.
    pub retry_states: &'a HashMap<Uid, Box<RetryState>>,
    /// When the lists were requested: a late answer shows how things were then, at the earliest.
    pub read_at: Instant,
    /// The backoff of repeated attempts.
    pub pauses: Backoff,
    /// For how long a VNIC must have been missing from lists until it is certain that it is not being made: the cloud may
    /// not list at once what it was asked for.
    pub proof: Duration,
    /// When it is.
    pub clock: Clock,
}

/// What is to be done and said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// In this order.
    pub steps: Vec<Step>,
    /// By the objects' names.
    pub verdicts: BTreeMap<String, AttachmentStatus>,
    /// Whether something changes by itself soon, or the next step has to wait for it.
    pub waits: bool,
    /// Whether the cloud does not show what should be there: it may in a moment, or when a policy comes.
    pub unseen: bool,
    /// Whether objects wait for the attach or detach that is among the steps.
    pub queued: bool,
    /// Those of them that were not refused in a turn of their own.
    pub in_line: BTreeSet<String>,
    /// When the first of those that rest has rested enough: what they asked for came to nothing.
    pub rests: Option<Pause>,
    /// Whether a step would be among them, or not, by the instance's pod network, which was not asked for: ask, and plan anew.
    pub asks_pod_network: bool,
    /// Whether something has to wait until that is another, which nobody tells of.
    pub held: bool,
    /// Objects whose VNICs are as asked, but maybe for their addresses.
    pub as_asked: BTreeSet<String>,
    /// VNICs with our tags whose objects are not there, or have another one.
    pub unclaimed: Vec<Uid>,
}

/// Plans.
#[must_use]
pub fn plan(wanted: &Wanted<'_>, observed: &Observed) -> Plan {
    let mut plan = Plan { unclaimed: unclaimed(wanted, observed), ..Plan::default() };
    let mut cases: Vec<Case<'_>> = wanted.objects.iter().map(|object| Case::of(wanted, observed, object)).collect();
    // The oldest first: who came first has its place.
    cases.sort_by(|a, b| a.age().cmp(&b.age()));
    let mut slot = Slot::of(observed);
    plan.waits = slot.taken_by.is_some();
    // Who was refused, whatever for, or asked in vain goes last, those who were so longest ago before others: none keeps the rest
    // waiting for ever. What leaves makes room.
    let mut turns: Vec<&Case<'_>> = cases.iter().collect();
    turns.sort_by_key(|case| (case.state.refused.as_ref().map(|refused| refused.turn), !case.is_leaving()));
    for case in turns {
        if case.is_leaving() {
            let verdict = leaving::plan(case, wanted, observed, &mut slot, &mut plan);
            plan.verdicts.insert(case.name.clone(), verdict);
            continue;
        }
        // Who has a VNIC keeps the name, else it is the oldest's: of those made in one second, the first in the alphabet is that,
        // whoever was there first.
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
        // Its VNICs go before it does: nobody took them away, and nothing is to be mended.
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
            // One 404 for what is listed as attached is no reason to say anything new.
            (AttachmentState::Attached, None) if case.state.unseen_looks < 2 && case.is_told_of(live) => {
                plan.waits = true;
                case.as_told()
            }
            // It may be on its way out, as below.
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
        // It may be on its way out, and could not be mended before it has stopped.
        plan.waits = true;
        return case.as_told();
    }
    if case.is_missing() && (case.absent_for() < wanted.proof || case.is_unlisted) {
        // A list that is behind is no reason to attach another, nor to say anything new. One that stays so is asked for ever
        // more seldom.
        plan.waits |= case.absent_for() < wanted.proof;
        plan.unseen = true;
        return case.as_told();
    }
    if case.outlived_tokens(wanted.clock)
        && !case.is_listed_gone()
        && case.state.unlisted_for(wanted.read_at) < wanted.proof
    {
        // Nor is it where people were told of none: the cloud would not take the request for one that it has carried out.
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
        // First what happened, then what is in the way of mending it.
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
        // Until it is attached: else it would be written and taken back with each attempt.
        FailedAttempt::Attach.said()
    } else {
        said
    };
    AttachmentStatus { attached: said, ready: None, facts: Facts::default() }
}

/// The instance is no more. What a profile made goes when the Node is gone, too: as long as that is there, the profile would
/// make it again (`profile/removal.rs`).
fn gone() -> AttachmentStatus {
    AttachmentStatus::without_vnic(Reason::NodeGone, "the instance is terminated, and its VNIC is gone")
}

/// The cloud answers 404 for the instance. Which VNIC it had stays written: it is asked for, too.
fn not_seen(case: &Case<'_>, wanted: &Wanted<'_>) -> AttachmentStatus {
    if case.stays_gone() {
        return case.as_told();
    }
    if case.forgotten() == Err(Doubt::NotLooked) && case.is_told(Reason::InstanceForgotten) {
        // No answer speaks neither for its end nor against it.
        return case.as_told();
    }
    let (reason, message) = forgotten::said(case.told(ConditionType::Attached), case.forgotten(), wanted.clock);
    let facts = Facts { vnic_id: case.told_vnic().cloned(), ..Facts::default() };
    AttachmentStatus { facts, ..AttachmentStatus::without_vnic(reason, message) }
}

/// Nobody here detaches what is to stay. Which VNIC it was stays written until it is gone: that another one is asked for needs
/// proof.
fn being_detached(case: &Case<'_>, live: &Seen) -> AttachmentStatus {
    let attached = if case.is_told_of(live) || case.is_told_of_detachment() {
        StatusReason::new(
            Reason::DetachedOutOfBand,
            "the VNIC is being detached outside the controller; a new one is attached when it is gone",
        )
    } else if case.is_told(Reason::AttachFailed) {
        FailedAttempt::Attach.said()
    } else {
        // It may be the cloud itself, which takes back what it could not attach.
        StatusReason::new(
            Reason::Detaching,
            "OCI is removing the VNIC before it was attached; a new one is attached when it is gone",
        )
    };
    AttachmentStatus { attached, ready: None, facts: case.facts_of(live) }
}

/// It is attached, and the cloud is not done with the VNIC itself: nothing is asked for of it, and nobody is told
/// that it is there who was not told before.
fn being_made(case: &Case<'_>, live: &Seen, plan: &mut Plan) -> AttachmentStatus {
    plan.waits = true;
    // A VNIC is named from its making on; one that is told as attached is not made anew, but changed.
    if !(case.is_told_of(live) && case.is_told(Reason::Attached)) {
        return attaching(case, live);
    }
    let told = case.as_told();
    if case.is_told_in_this_generation() {
        return told;
    }
    // That it is as the spec was says nothing of what that is now.
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
    // The uids of those that cannot be read are not known, and the name of a VNIC's object not before the VNIC is seen.
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

    /// Whether there is nothing to be done for any of the objects, now or later.
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
