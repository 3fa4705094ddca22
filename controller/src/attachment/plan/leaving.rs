//! An object that is being deleted: its VNIC is detached or released first, then the finalizer is removed.

use api::AttachmentReason as Reason;
use api::OnDelete;
use oci::{AttachmentState, InstanceState, UpdateVnic};

use super::{Case, ObjectPlanner, Plan, PlanInput, pod_network};
use crate::attachment::mark::Mark;
use crate::attachment::observe::observed::{Machine, ObservedAttachment};
use crate::attachment::report::attachment_status::{AttachmentStatus, Facts, StatusReason};
use crate::attachment::report::{event_diff, node_report};
use crate::attachment::state::retry_state::FailedAttempt;
use crate::attachment::step::{Action, VnicVersion};
use crate::work::Pause;

/// A VNIC that keeps our tags counts as orphaned.
const TAGS_NOT_REMOVED: &str = "GetVnic of the VNIC to orphan is answered 404, so our tags cannot be removed; to keep it with its tags, remove the finalizer";

/// The same with an invisible instance: the message before it names the cause. OCI forgets an ended instance after a while.
const IF_IT_ENDED: &str = "; if the instance ended, remove the finalizer";
const IF_ORPHANED: &str = "; to keep it with our tags, remove the finalizer";

impl ObjectPlanner<'_> {
    pub(super) fn leave(&mut self) -> AttachmentStatus {
        let (case, plan) = (self.case, &mut *self.plan);
        let state = match &self.observed.machine {
            // A VNIC goes with its instance.
            Machine::NotSeen if case.reported_reason() == Some(Reason::NodeGone) => return let_go(case, plan),
            Machine::NotSeen => {
                let mut planned_status = super::staying::not_seen(case);
                planned_status.attached.message.push_str(if is_orphan(case) { IF_ORPHANED } else { IF_IT_ENDED });
                return planned_status;
            }
            machine if machine.is_terminated() => return let_go(case, plan),
            Machine::There { state, .. } => *state,
        };
        let is_listed = case.seen.iter().any(|seen| seen.state() != AttachmentState::Detached);
        if !is_listed && state == InstanceState::Terminating {
            // Lists of such an instance may be empty. It will be TERMINATED in a moment, which is proof.
            plan.waits = true;
            return AttachmentStatus::without_vnic(
                Reason::Detaching,
                "the instance is being terminated, and the VNIC with it",
            );
        }
        if !is_listed {
            return absent(case, self.input, plan);
        }
        self.leave_listed(state)
    }

    /// Some are listed: usually one.
    fn leave_listed(&mut self, state: InstanceState) -> AttachmentStatus {
        let case = self.case;
        let backoff = case.backoff_after(&[FailedAttempt::Detach]).map(|(_, pause)| pause).filter(|_| !is_orphan(case));
        let (mut planned_status, mut left) = (None, true);
        for seen in case.seen.iter().filter(|seen| seen.state() != AttachmentState::Detached) {
            let cause = self.leave_one(seen, state, backoff);
            let is_left = is_orphan(case) && seen.vnic.is_some();
            let backs_off = backoff.is_some() && seen.state() == AttachmentState::Attached;
            let is_held = matches!(cause.reason, Reason::InUse | Reason::UsedByPods | Reason::PodNetworkUnknown);
            self.plan.waits |= !is_left && !backs_off && !is_held;
            left &= is_left;
            planned_status.get_or_insert(cause);
        }
        if left {
            self.plan.push(case, Action::RemoveFinalizer);
        }
        let attached = match planned_status {
            // Until it is gone: otherwise it would be written and reverted with each attempt.
            Some(cause)
                if cause.reason == Reason::Detaching
                    && case.reported_reason() == Some(Reason::DetachFailed)
                    && !is_orphan(case) =>
            {
                FailedAttempt::Detach.status_reason()
            }
            Some(cause) => cause,
            None => StatusReason::new(Reason::Detaching, ""),
        };
        // The status keeps the VNIC, so that a later process recognizes it when it is listed as DETACHED.
        let vnic_id = case.live().and_then(|seen| seen.attachment.vnic_id.clone());
        let pod_addresses = event_diff::last(case.object.status.as_ref()).facts.pod_addresses;
        AttachmentStatus { attached, ready: None, facts: Facts { vnic_id, pod_addresses, ..Facts::default() } }
    }

    /// Releases or detaches one.
    fn leave_one(&mut self, seen: &ObservedAttachment, state: InstanceState, backoff: Option<Pause>) -> StatusReason {
        let case = self.case;
        let orphan = is_orphan(case);
        match (seen.state(), &seen.vnic) {
            (AttachmentState::Attached, Some(vnic)) if orphan => {
                let tags = Mark::released(&vnic.vnic.value.freeform_tags, &case.uid);
                let version = VnicVersion { id: vnic.vnic.value.id.clone(), etag: vnic.vnic.etag.clone() };
                let change = UpdateVnic { freeform_tags: Some(tags), ..UpdateVnic::default() };
                self.plan.push(case, Action::Disown(version, Box::new(change)));
                StatusReason::new(Reason::Detaching, "the VNIC stays on the instance, tagged as released")
            }
            // It stays in any case. A failure to remove its tags may pass: a policy is added, or OCI's view catches up.
            (AttachmentState::Attached, None) if orphan => {
                StatusReason::new(Reason::NotAuthorizedOrNotFound, TAGS_NOT_REMOVED)
            }
            (AttachmentState::Attached, _) => {
                let now = self.input.now;
                if let Some(cause) = node_report::in_use(case.object, now) {
                    if let Some(left) = node_report::answers_within(case.object, now) {
                        self.plan.back_off(Pause { left, number: 1 });
                    }
                    return cause;
                }
                let Some(pause) = backoff else { return self.detach(seen, state) };
                self.plan.back_off(pause);
                FailedAttempt::Detach.status_reason()
            }
            (AttachmentState::Detaching, _) => StatusReason::new(Reason::Detaching, "the VNIC is being detached"),
            _ if orphan => StatusReason::new(Reason::Detaching, "the VNIC is released as soon as it is attached"),
            _ => StatusReason::new(Reason::Detaching, "the VNIC is detached as soon as it is attached"),
        }
    }

    fn detach(&mut self, seen: &ObservedAttachment, state: InstanceState) -> StatusReason {
        let (case, slot, plan) = (self.case, &mut *self.slot, &mut *self.plan);
        if let Some(cause) = super::is_busy(state) {
            return cause;
        }
        match slot.busy(case, self.input.progress, plan) {
            Some(cause) => cause,
            // The list does not show it yet.
            None if case.state.accepted_detach() == Some(&seen.attachment.id) => {
                slot.take_unlisted("detached");
                StatusReason::new(Reason::Detaching, "the VNIC is being detached")
            }
            None => {
                let vnic = seen.attachment.vnic_id.as_ref();
                pod_network::before_detach(self.observed, vnic, plan).unwrap_or_else(|| {
                    slot.take("detached");
                    plan.push(case, Action::Detach(seen.attachment.id.clone()));
                    StatusReason::new(Reason::Detaching, "the VNIC is being detached")
                })
            }
        }
    }
}

/// Whether its VNIC is to stay on the instance.
fn is_orphan(case: &Case<'_>) -> bool {
    case.object.spec.vnic.on_delete == OnDelete::Orphan
}

/// None is listed. That is proof if the detached VNIC itself is listed as DETACHED. Otherwise an earlier process may have
/// requested another one a moment ago, which is not listed yet.
fn absent(case: &Case<'_>, input: &PlanInput<'_>, plan: &mut Plan) -> AttachmentStatus {
    let is_early = case.absent_for() < input.proof;
    if case.has_finalizer() && !case.was_taken_off() && (is_early || case.is_unlisted) {
        plan.waits |= is_early;
        plan.is_incomplete = true;
        let message = "OCI lists no VNIC for this object; waiting for proof that none is attached or being attached";
        let facts = Facts { vnic_id: case.reported_vnic().cloned(), ..Facts::default() };
        return AttachmentStatus { facts, ..AttachmentStatus::without_vnic(Reason::Detaching, message) };
    }
    let_go(case, plan)
}

fn let_go(case: &Case<'_>, plan: &mut Plan) -> AttachmentStatus {
    if case.has_finalizer() {
        plan.push(case, Action::RemoveFinalizer);
    }
    AttachmentStatus::without_vnic(Reason::Detaching, "the VNIC is gone")
}
