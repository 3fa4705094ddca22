//! How OKE's pod network blocks steps: while OKE builds it, no VNIC is attached, and one that it uses is not detached. A plan
//! with such a step but without the pod network requests a read of it, and omits the step.

use api::AttachmentReason as Reason;
use api::condition::Condition;
use api::npn::NpnState;
use api::{NativePodNetwork, Reason as _};
use vcn::Ocid;

use super::Plan;
use crate::attachment::observe::observed::Observed;
use crate::attachment::observe::pod_network::PodNetwork;
use crate::attachment::report::attachment_status::StatusReason;

/// Why no VNIC may be attached now, if so. The last reported reason explains the missing readiness.
pub(super) fn before_attach(
    observed: &Observed,
    reported: Option<&Condition>,
    plan: &mut Plan,
) -> Option<StatusReason> {
    hold(observed, plan, |npn| (npn.state != NpnState::Success).then(|| pending(npn, reported)))
}

/// Why this VNIC may not be detached now, if so.
pub(super) fn before_detach(observed: &Observed, vnic: Option<&Ocid>, plan: &mut Plan) -> Option<StatusReason> {
    hold(observed, plan, |npn| {
        // A VNIC that it may name later is not waited for: some stay IN_PROGRESS forever.
        if !vnic.is_some_and(|vnic| npn.names(vnic)) {
            return None;
        }
        let name = name(npn);
        let message = format!(
            "NativePodNetwork {name} lists the VNIC for pods; drain the node, then `kubectl delete npn {name}` or terminate the instance; or set spec.onDelete to Orphan"
        );
        Some(StatusReason::new(Reason::UsedByPods, message))
    })
}

fn hold(
    observed: &Observed,
    plan: &mut Plan,
    judge: impl FnOnce(&NativePodNetwork) -> Option<StatusReason>,
) -> Option<StatusReason> {
    let cause = match &observed.pod_network {
        None => {
            plan.needs_pod_network = true;
            Some(StatusReason::new(Reason::PodNetworkUnknown, "not read yet"))
        }
        Some(PodNetwork::Absent) => None,
        Some(PodNetwork::There(npn)) => judge(npn),
        Some(PodNetwork::Unreadable(why)) => Some(StatusReason::new(Reason::PodNetworkUnknown, why.clone())),
    };
    plan.held |= cause.is_some();
    cause
}

fn pending(npn: &NativePodNetwork, reported: Option<&Condition>) -> StatusReason {
    let of = what(npn);
    // While it fails, OKE alternates between the two states, and the failure is what helps.
    let failed = format!("{of} is {}", NpnState::Backoff);
    let is_kept = |reported: &&Condition| {
        reported.reason == Reason::PodNetworkPending.as_str() && reported.message.starts_with(&failed)
    };
    if let Some(reported) = reported.filter(is_kept).filter(|_| npn.state == NpnState::InProgress) {
        return StatusReason::new(Reason::PodNetworkPending, reported.message.clone());
    }
    let message = match &npn.reason {
        Some(reason) => format!("{of} is {}: {reason}", npn.state),
        None => format!("{of} is {}", npn.state),
    };
    StatusReason::new(Reason::PodNetworkPending, message)
}

fn what(npn: &NativePodNetwork) -> String {
    format!("NativePodNetwork {}", name(npn))
}

fn name(npn: &NativePodNetwork) -> &str {
    npn.name.as_deref().unwrap_or_else(|| npn.instance.unique_id())
}
