//! An object that is to have a VNIC: it is attached, or changed, or waited for.

use api::AttachmentReason as Reason;
use api::ConditionType;
use oci::{AttachmentState, InstanceState, Subnet};

use super::{Case, ObjectPlanner, Plan, attach_request, is_busy, pod_network};
use crate::attachment::observe::observed::{Machine, ObservedAttachment, ObservedVnic};
use crate::attachment::report::attachment_status::{AttachmentStatus, Facts, StatusReason};
use crate::attachment::state::retry_state::FailedAttempt;
use crate::attachment::step::Action;
use crate::work::Pause;

impl ObjectPlanner<'_> {
    pub(super) fn stay(&mut self) -> AttachmentStatus {
        let state = match &self.observed.machine {
            Machine::NotSeen => return not_seen(self.case),
            machine if machine.is_terminated() => return gone(),
            Machine::There { state, .. } => *state,
        };
        if state == InstanceState::Terminating {
            // Its VNICs go first: no other program detached them, and nothing needs repair.
            self.plan.waits = true;
            return self.case.as_reported_or(Reason::InstanceBusy, "the instance is TERMINATING");
        }
        if !self.case.has_finalizer() {
            self.plan.push(self.case, Action::AddFinalizer);
        }
        match self.case.live() {
            Some(live) => self.with_vnic(live, state),
            None => self.without_vnic(state),
        }
    }

    pub(super) fn subnet(&self) -> Option<&Subnet> {
        self.observed.subnets.get(&self.case.object.spec.vnic.subnet_id)
    }

    /// A VNIC is listed.
    fn with_vnic(&mut self, live: &ObservedAttachment, state: InstanceState) -> AttachmentStatus {
        let case = self.case;
        let is_terminating = live.vnic.as_ref().is_some_and(ObservedVnic::is_terminating);
        self.plan.waits |= is_terminating;
        match (live.state(), &live.vnic) {
            (AttachmentState::Attached, Some(vnic)) if vnic.is_provisioning() => being_made(case, live, self.plan),
            (AttachmentState::Attached, Some(vnic)) if !is_terminating => self.present(vnic),
            // One 404 for an attachment that is listed changes no report.
            (AttachmentState::Attached, None) if case.state.unseen_reconciles < 2 && case.is_reported_vnic(live) => {
                self.plan.waits = true;
                case.as_reported()
            }
            // It may be going, as below.
            (AttachmentState::Detaching, _) | (AttachmentState::Attached, Some(_))
                if state == InstanceState::Stopping && case.was_attached() =>
            {
                case.as_reported()
            }
            (AttachmentState::Detaching, _) | (AttachmentState::Attached, Some(_)) => being_detached(case, live),
            _ => {
                self.plan.is_incomplete |= live.state() == AttachmentState::Attached;
                attaching(case, live)
            }
        }
    }

    /// None is listed: a stale list, or one is to be attached.
    fn without_vnic(&mut self, state: InstanceState) -> AttachmentStatus {
        let (case, input) = (self.case, self.input);
        if state == InstanceState::Stopping && case.was_attached() {
            // It may be going, and can be repaired only when it has stopped.
            self.plan.waits = true;
            return case.as_reported();
        }
        if case.is_missing() && (case.absent_for() < input.proof || case.is_unlisted) {
            // A stale list neither attaches another VNIC nor changes a report. While it stays stale, it is read with growing
            // backoff.
            self.plan.waits |= case.absent_for() < input.proof;
            self.plan.is_incomplete = true;
            return case.as_reported();
        }
        if case.outlived_tokens(input.now)
            && !case.is_listed_gone()
            && case.state.unlisted_for(input.read_at) < input.proof
        {
            // Nor without a reported VNIC: OCI would refuse the token of a request that it has carried out.
            self.plan.waits = true;
            return case.as_reported_or(
                Reason::Attaching,
                "OCI lists no VNIC for this object; waiting for proof that there is none",
            );
        }
        self.attach(state)
    }

    /// Requests a VNIC, unless something blocks that.
    fn attach(&mut self, state: InstanceState) -> AttachmentStatus {
        let case = self.case;
        let backoff = case.backoff_after(&[FailedAttempt::Attach, FailedAttempt::Loss]);
        let behind = case.was_attached().then(|| match &backoff {
            Some((FailedAttempt::Loss, _)) => FailedAttempt::Loss.status_reason(),
            _ => StatusReason::new(Reason::DetachedOutOfBand, "the VNIC was detached outside the controller"),
        });
        let mut blocker = self.blocker(state, backoff);
        let is_subnet_seen = self.subnet().is_some();
        if blocker.is_none() && is_subnet_seen {
            blocker = pod_network::before_attach(self.observed, case.reported(ConditionType::Ready), self.plan);
        }
        let planned_status = match (blocker, self.subnet()) {
            // First what happened, then what blocks the repair.
            (Some(_), _) if behind.is_some() && case.reported_reason() != Some(Reason::DetachedOutOfBand) => behind,
            (Some(cause), _) => Some(cause),
            (None, None) => {
                let subnet = &case.object.spec.vnic.subnet_id;
                let message = format!("GetSubnet is answered 404: {subnet}");
                Some(StatusReason::new(Reason::NotAuthorizedOrNotFound, message))
            }
            (None, Some(subnet)) => {
                let request = attach_request::attach(case, self.input.mark, subnet);
                self.slot.take("attached");
                self.plan.waits = true;
                self.plan.push(case, request);
                behind
            }
        };
        let cause = planned_status.unwrap_or_else(|| StatusReason::new(Reason::Attaching, "OCI is creating the VNIC"));
        AttachmentStatus { attached: unless_repeated(case, cause), ready: None, facts: Facts::default() }
    }

    /// Why no VNIC may be requested now, the pod network apart.
    fn blocker(&mut self, state: InstanceState, backoff: Option<(FailedAttempt, Pause)>) -> Option<StatusReason> {
        if let Some(cause) = is_busy(state) {
            self.plan.waits = true;
            return Some(cause);
        }
        if let Some(cause) = self.capacity().or_else(|| self.public_address()) {
            return Some(cause);
        }
        if let Some((after, pause)) = backoff {
            self.plan.back_off(pause);
            return Some(after.status_reason());
        }
        let cause = self.slot.busy(self.case, self.input.progress, self.plan)?;
        self.plan.waits = true;
        Some(cause)
    }

    fn capacity(&self) -> Option<StatusReason> {
        let Machine::There { shape, most: Some(most), .. } = &self.observed.machine else { return None };
        let live = self.observed.attachments.iter().filter(|seen| seen.state().counts()).count() + self.plan.attaches();
        let message = || format!("the instance ({shape}) has {live} of {most} VNICs");
        (live as u64 >= u64::from(*most)).then(|| StatusReason::new(Reason::ShapeCapacity, message()))
    }

    fn public_address(&self) -> Option<StatusReason> {
        let is_private = self.subnet().is_some_and(|subnet| subnet.prohibit_public_ip_on_vnic);
        let message = "assignPublicIp is true, and the subnet prohibits public addresses (prohibitPublicIpOnVnic)";
        let is_wrong = self.case.object.spec.vnic.assign_public_ip && is_private;
        is_wrong.then(|| StatusReason::new(Reason::InvalidSpec, message))
    }
}

/// The reason of an attach, unless an earlier one is still reported.
fn unless_repeated(case: &Case<'_>, cause: StatusReason) -> StatusReason {
    match case.reported_reason() {
        Some(Reason::DetachedOutOfBand) if cause.reason == Reason::Attaching => attached_again(),
        // Until it is attached: otherwise it would be written and reverted with each attempt.
        Some(Reason::AttachFailed) if cause.reason == Reason::Attaching => FailedAttempt::Attach.status_reason(),
        _ => cause,
    }
}

fn attached_again() -> StatusReason {
    let message = "the VNIC was detached outside the controller; it is being attached again";
    StatusReason::new(Reason::DetachedOutOfBand, message)
}

/// The instance is gone. A profile's object is deleted when the Node is gone too: while the Node exists, the profile would
/// create it again (`profile/removal.rs`).
fn gone() -> AttachmentStatus {
    AttachmentStatus::without_vnic(Reason::NodeGone, "the instance is terminated, and its VNIC is gone")
}

/// OCI answers 404 for the instance. The status keeps the VNIC, because it is also read.
pub(super) fn not_seen(case: &Case<'_>) -> AttachmentStatus {
    if case.reported_reason() == Some(Reason::NodeGone) {
        // It was seen TERMINATED, which is final.
        return case.as_reported();
    }
    let message = "GetInstance is answered 404: the instance is gone, or the controller lacks permission";
    let facts = Facts { vnic_id: case.reported_vnic().cloned(), ..Facts::default() };
    AttachmentStatus { facts, ..AttachmentStatus::without_vnic(Reason::NotAuthorizedOrNotFound, message) }
}

/// The controller detaches nothing that should stay. The status keeps the VNIC until it is gone, because another one is
/// requested only with proof.
fn being_detached(case: &Case<'_>, live: &ObservedAttachment) -> AttachmentStatus {
    let is_lost = case.is_reported_vnic(live);
    let attached = match case.reported_reason() {
        reason if is_lost || reason == Some(Reason::DetachedOutOfBand) => StatusReason::new(
            Reason::DetachedOutOfBand,
            "the VNIC is being detached outside the controller; a new one is attached when it is gone",
        ),
        Some(Reason::AttachFailed) => FailedAttempt::Attach.status_reason(),
        // OCI itself may remove a VNIC that it could not attach.
        _ => StatusReason::new(
            Reason::Detaching,
            "OCI is removing the VNIC before it was attached; a new one is attached when it is gone",
        ),
    };
    AttachmentStatus { attached, ready: None, facts: case.facts_of(live) }
}

/// The VNIC is still PROVISIONING: make no calls, and do not newly report Attached.
fn being_made(case: &Case<'_>, live: &ObservedAttachment, plan: &mut Plan) -> AttachmentStatus {
    plan.waits = true;
    // A VNIC is named from its creation on; one that was reported as attached is being changed, not created.
    if !(case.is_reported_vnic(live) && case.reported_reason() == Some(Reason::Attached)) {
        return attaching(case, live);
    }
    let reported = case.as_reported();
    if case.is_reported_in_this_generation() {
        return reported;
    }
    // Ready refers to the previous generation.
    AttachmentStatus {
        ready: Some(StatusReason::new(Reason::ChangePending, "OCI has not finished the last change of the VNIC")),
        ..reported
    }
}

fn attaching(case: &Case<'_>, live: &ObservedAttachment) -> AttachmentStatus {
    let is_invisible = live.state() == AttachmentState::Attached && live.vnic.is_none();
    let is_replaced = case.was_attached() && !case.is_reported_vnic(live);
    let attached = match case.reported_reason() {
        _ if is_invisible => StatusReason::new(
            Reason::Attaching,
            "the VNIC is attached, and GetVnic is answered 404: not visible yet, or no permission",
        ),
        reason if is_replaced || reason == Some(Reason::DetachedOutOfBand) => attached_again(),
        Some(Reason::AttachFailed) => FailedAttempt::Attach.status_reason(),
        _ => StatusReason::new(Reason::Attaching, "OCI is creating the VNIC"),
    };
    AttachmentStatus { attached, ready: None, facts: case.facts_of(live) }
}
